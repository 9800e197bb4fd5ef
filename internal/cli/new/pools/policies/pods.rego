# METADATA
# scope: package
# title: May this pod run?
# schemas:
# - input: schema.template
package corral.template

import data.corral.pod

# pod.containers has every container by its path, sidecars too.
deny contains {
	"code": "privileged",
	"msg": sprintf("container %s is privileged: its jobs are root on the node", [container.name]),
	"path": sprintf("%s.securityContext.privileged", [path]),
	"remediation": "remove privileged",
} if {
	some path, container in pod.containers
	container.securityContext.privileged
}
