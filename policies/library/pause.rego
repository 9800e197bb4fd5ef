# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

# METADATA
# scope: package
# title: Pause
# description: Whether pools are paused.
package corral.library.pause

# end is {"until": time} during a pause, or {} if the pause has no end. It is undefined when there is no pause.
end := {} if {
	data.library.pause
	not data.library.pause.until
}

end := {"until": until} if {
	until := time.parse_rfc3339_ns(data.library.pause.until)
	input.now < until
}

reason := sprintf("paused: %s", [data.library.pause.reason])
