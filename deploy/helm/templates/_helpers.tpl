{{- /* What all Pods have. The dictionary: root, name (of the process). */ -}}
{{- define "countersink.labels" -}}
app.kubernetes.io/component: {{ .name }}
app.kubernetes.io/name: countersink
{{- end }}

{{- define "countersink.account" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .name }}
  labels: {app.kubernetes.io/name: countersink}
  annotations: {iam.gke.io/gcp-service-account: countersink-{{ .name }}@{{ required "project is needed" .root.Values.project }}.iam.gserviceaccount.com}
automountServiceAccountToken: false
{{- end }}

{{- define "countersink.pod" -}}
serviceAccountName: {{ .name }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  {{- if ne .name "operator" }}
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  {{- end }}
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "countersink.spread" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: topology.kubernetes.io/zone
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "countersink.labels" . | nindent 8 }}
{{- end }}

{{- define "countersink.container" -}}
name: countersink
image: {{ required "image is needed" .root.Values.image }}
imagePullPolicy: Always
envFrom:
  - configMapRef: {name: settings}
  - secretRef: {name: countersink-settings, optional: true}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- define "countersink.alive" -}}
readinessProbe:
  httpGet: {path: /healthz, port: http}
  periodSeconds: 5
  timeoutSeconds: 3
livenessProbe:
  httpGet: {path: /healthz, port: http}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
{{- end }}

{{- define "countersink.budget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  labels: {app.kubernetes.io/name: countersink}
spec:
  maxUnavailable: 1
  selector:
    matchLabels:
      {{- include "countersink.labels" . | nindent 6 }}
{{- end }}

{{- /* A change of the settings restarts the processes one after the other. */ -}}
{{- define "countersink.changes" -}}
annotations: {checksum/settings: {{ include (print .root.Template.BasePath "/settings.yaml") .root | sha256sum }}}
{{- end }}
