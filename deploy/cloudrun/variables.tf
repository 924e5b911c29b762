variable "project" {
  description = "The ID of the project."
  type        = string
}

variable "region" {
  description = "Where everything runs, for example europe-west1."
  type        = string
}

variable "image" {
  description = "The image that deploy/Dockerfile makes, by its digest."
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

variable "subnetwork" {
  description = "The subnetwork of that network in the region."
  type        = string
  default     = "default"
}

variable "database" {
  description = "The database. After a restore: the one that was restored."
  type        = string
  default     = "(default)"
}

variable "keys_secret" {
  description = "The secret in Secret Manager with the keys file."
  type        = string
  default     = "countersink-keys"
}

variable "proxies" {
  description = "Addresses of your load balancer, if there is one, such as 203.0.113.9/32."
  type        = list(string)
  default     = []
}

variable "audiences" {
  description = "Audiences of the ID tokens of service accounts that have keys, such as https://counts.example.com."
  type        = list(string)
  default     = []
}

variable "most_ingests" {
  description = "How many instances of ingest may run."
  type        = number
  default     = 20
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
