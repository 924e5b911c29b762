variable "project" {
  description = "The ID of the project."
  type        = string
}

variable "region" {
  description = "Where Redis and the processes run, for example europe-west1."
  type        = string
}

variable "location" {
  description = "Where the database is: a region, or nam5 or eur3. It can never be changed. If null, it is the region."
  type        = string
  default     = null
}

variable "network" {
  description = "The network (its self link) from which Redis can be reached, with private services access."
  type        = string
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
  description = "Memory of Redis. It holds increments until they are applied, so some seconds of traffic."
  type        = number
  default     = 1
}

variable "kubernetes_namespace" {
  description = "If the processes run on GKE: the namespace of their service accounts, for example countersink."
  type        = string
  default     = null
}

variable "notification_channels" {
  description = "The channels of Cloud Monitoring to which alerts go."
  type        = list(string)
  default     = []
}
