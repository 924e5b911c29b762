variable "project" {
  description = "The ID of the project."
  type        = string
}

variable "region" {
  description = "Where Redis and the processes run, for example europe-west1."
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

variable "alerts" {
  description = "Alerts of the platform, besides those of this module."
  type        = map(object({ query = string, duration = string, severity = string, says = string }))
  default     = {}
}

variable "scraped" {
  description = "Whether Managed Service for Prometheus has the metrics of the processes, because it collects them or they are pushed."
  type        = bool
}

variable "network" {
  description = "The network from which Redis can be reached: its name, or its self link if another project shares it."
  type        = string
  default     = "default"
}

variable "location" {
  description = "Where the database is: a region, or nam5 or eur3. It can never be changed. If null, it is the region."
  type        = string
  default     = null
}

variable "database" {
  description = "The database that the processes use. After a restore: the one that was restored."
  type        = string
  default     = "(default)"
}

variable "topic" {
  description = "The name of the topic for increments. All other names on Pub/Sub begin with it."
  type        = string
  default     = "counts"
}

variable "retention" {
  description = "For how many seconds Pub/Sub keeps messages. All processes need the same number in COUNTERSINK_RETENTION."
  type        = number
  default     = 604800
}

variable "redis_gb" {
  description = "Memory of Redis. It holds increments until they are applied, so a few seconds of traffic."
  type        = number
  default     = 1
}

variable "kubernetes_namespace" {
  description = "If the processes run on GKE: the namespace of their service accounts, for example countersink."
  type        = string
  default     = null
}

variable "budget" {
  description = "If not null: the billing account, and how much a month may cost in its currency. Warnings come at a half, 90 % and all of it."
  type        = object({ billing_account = string, project_number = number, units = number })
  default     = null
}
