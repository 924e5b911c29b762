variable "project" {
  description = "The ID of the project."
  type        = string
}

variable "project_number" {
  description = "The number of the project, which is in the name of Pub/Sub's own account: `gcloud projects describe` shows it."
  type        = number
}

variable "region" {
  description = "Where the processes run, for example europe-west1."
  type        = string
}

variable "location" {
  description = "Where the dataset is, for example EU. If null, it is the region."
  type        = string
  default     = null
}

variable "topic" {
  description = "The name of the topic of the feed."
  type        = string
  default     = "counts-feed"
}

variable "dataset" {
  description = "The name of the dataset."
  type        = string
  default     = "counts"
}
