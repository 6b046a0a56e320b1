{{/* The prefix of the names of objects. */}}
{{- define "csi-mpath.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What a Deployment's or Service's pods are found by: never changes. dict "root" "part" */}}
{{- define "csi-mpath.selector" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end -}}

{{/* dict "root" "part" */}}
{{- define "csi-mpath.labels" -}}
{{ include "csi-mpath.selector" . }}
app.kubernetes.io/part-of: csi-mpath
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.customLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "csi-mpath.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ default $.Chart.AppVersion .tag }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "csi-mpath.controllerAccount" -}}
{{- default (printf "%s-controller" (include "csi-mpath.fullname" .)) .Values.controller.serviceAccount.name -}}
{{- end -}}

{{- define "csi-mpath.nodeAccount" -}}
{{- default (printf "%s-node" (include "csi-mpath.fullname" .)) .Values.node.serviceAccount.name -}}
{{- end -}}

{{/* A container that may do nothing but what its user may. */}}
{{- define "csi-mpath.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* true, or nothing: whether the snapshot sidecar runs. */}}
{{- define "csi-mpath.snapshots" -}}
{{- $want := toString .Values.sidecars.snapshotter.enabled -}}
{{- if or (eq $want "true") (and (eq $want "auto") (.Capabilities.APIVersions.Has "snapshot.storage.k8s.io/v1")) -}}
true
{{- end -}}
{{- end -}}

{{/* The Secret with a backend's certificates. dict "root" "backend" */}}
{{- define "csi-mpath.pkiSecret" -}}
{{- default (printf "%s-backend-%s" (include "csi-mpath.fullname" .root) .backend.name) .backend.agent.secretName -}}
{{- end -}}

{{/* The name that the demo's storage host is reached by. */}}
{{- define "csi-mpath.demoHost" -}}
{{- default (printf "%s-demo.%s.svc" (include "csi-mpath.fullname" .) .Release.Namespace) .Values.demo.address -}}
{{- end -}}

{{/* A parameter's value as text: helm reads whole numbers as floats. */}}
{{- define "csi-mpath.scalar" -}}
{{- if kindIs "float64" . }}{{ int64 . }}{{ else }}{{ toString . }}{{ end -}}
{{- end -}}
