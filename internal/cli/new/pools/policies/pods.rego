# May this pod run?
package corral.template

deny contains {
	"code": "privileged",
	"msg": sprintf("container %s is privileged: its jobs are root on the node", [container.name]),
	"path": sprintf("spec.containers[%d].securityContext.privileged", [i]),
	"remediation": "remove privileged",
} if {
	some i, container in input.pod.spec.containers
	container.securityContext.privileged
}
