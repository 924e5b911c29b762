module countersink

go 1.19
