variable "project" {
  description = "The ID of the project."
  type        = string
}

variable "region" {
  description = "Where everything runs, for example europe-west1."
  type        = string
}

variable "network" {
  description = "The network (its self link) in which Redis is, with private services access."
  type        = string
}

variable "subnetwork" {
  description = "The subnetwork of that network in the region."
  type        = string
}

variable "image" {
  description = "The image that deploy/Dockerfile makes."
  type        = string
}

variable "keys_secret" {
  description = "The secret in Secret Manager with the keys file."
  type        = string
  default     = "countersink-keys"
}

variable "flushers" {
  description = "How many flushers run."
  type        = number
  default     = 2
}

variable "notification_channels" {
  description = "The channels of Cloud Monitoring to which alerts go."
  type        = list(string)
  default     = []
}
