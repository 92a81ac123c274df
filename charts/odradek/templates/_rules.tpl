{{- /*
Rights of the operator in a namespace that it watches. `e2e_tests/test_chart_rights.py` asks the API
server about every line, and runs the operator with exactly these rights. Secrets are read by their
names, never listed or watched. There is no right to exec, and none to create Roles if spark.mode is off;
but an account that may create StatefulSets can mount everything in their namespace.
*/}}
{{- define "odradek.rules" -}}
- apiGroups: [odradek.dev]
  resources: [kafkaclusters]
  verbs: [get, list, watch]
- apiGroups: [odradek.dev]
  resources: [topics]
  verbs: [get, list, watch, patch] # patch: the finalizer of deletionPolicy Delete
- apiGroups: [odradek.dev]
  resources: [kafkausers, kafkarebalances]
  verbs: [get, list, watch, patch] # patch: the finalizer
- apiGroups: [odradek.dev]
  resources: [kafkaclusters/status, topics/status, kafkausers/status, kafkarebalances/status]
  verbs: [patch]
# Owner references with blockOwnerDeletion need this where it is enforced (OpenShift).
- apiGroups: [odradek.dev]
  resources: [kafkaclusters/finalizers]
  verbs: [update]
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [configmaps, services]
  verbs: [list, create, patch, delete]
# Certificates of clusters with TLS, credentials of users, and the passwords that a KafkaUser's
# passwordFrom names. Secrets are read and written by their names, never listed.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, create, update, patch, delete]
# spec.certificates.issuerRef; the rule has no effect where cert-manager is not installed.
- apiGroups: [cert-manager.io]
  resources: [certificates]
  verbs: [get, create, patch]
- apiGroups: [""]
  resources: [serviceaccounts]
  verbs: [list, create, patch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [list, create, patch]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [list, create, patch, delete]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [list, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch, delete]
- apiGroups: [""]
  resources: [pods/eviction]
  verbs: [create]
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- if ne .Values.spark.mode "off" }}
- apiGroups: [odradek.dev]
  resources: [sparkpipelines]
  verbs: [list]
- apiGroups: [odradek.dev]
  resources: [sparkpipelines/status]
  verbs: [patch]
- apiGroups: [odradek.dev]
  resources: [sparkpipelines/finalizers]
  verbs: [update]
- apiGroups: [sparkoperator.k8s.io]
  resources: [sparkapplications]
  verbs: [list, create, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [get]
- apiGroups: [""]
  resources: [persistentvolumeclaims] # of a pipeline in one pod
  verbs: [create]
{{- end }}
{{- if has .Values.spark.mode (list "auto" "native") }}
- apiGroups: [sparkoperator.k8s.io]
  resources: [sparkapplications/status]
  verbs: [patch]
- apiGroups: [sparkoperator.k8s.io]
  resources: [sparkapplications/finalizers]
  verbs: [update]
{{- end }}
{{- if ne .Values.spark.mode "off" }}
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles, rolebindings]
  verbs: [create, patch]
# A Role may only be granted by an account that has all its rights: those of a driver.
- apiGroups: [""]
  resources: [pods, configmaps, services, persistentvolumeclaims]
  verbs: [get, list, watch, create, patch, delete, deletecollection]
{{- end }}
{{- end }}
