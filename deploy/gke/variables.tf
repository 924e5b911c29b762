variable "project" {
  description = "The ID of the project."
  type        = string
}

variable "region" {
  description = "Where everything runs, for example europe-west1."
  type        = string
}

variable "on_call" {
  description = "The mail address that critical alerts go to."
  type        = string
}

variable "tickets" {
  description = "The mail address that warnings go to."
  type        = string
}

variable "on_call_channels" {
  description = "Further channels of Cloud Monitoring for critical alerts, for example a pager."
  type        = list(string)
  default     = []
}

variable "network" {
  description = "The network in which Redis is."
  type        = string
  default     = "default"
}

variable "database" {
  description = "The database. After a restore: the one that was restored."
  type        = string
  default     = "(default)"
}

variable "location" {
  description = "Where the database is: a region, or nam5 or eur3. It can never be changed. If null, it is the region."
  type        = string
  default     = null
}

variable "redis_gb" {
  description = "Memory of Redis. It holds increments until they are applied, so a few seconds of traffic."
  type        = number
  default     = 1
}

variable "budget" {
  description = "If not null: the billing account, and how much a month may cost in its currency."
  type        = object({ billing_account = string, project_number = number, units = number })
  default     = null
}
