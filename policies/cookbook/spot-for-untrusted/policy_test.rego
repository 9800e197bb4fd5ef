# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

package corral.cookbook.spot_for_untrusted_test

import data.corral.template

codes(trust, selector) := {finding.code | some finding in found} if {
	found := template.deny with data.parameters as {"label": "karpenter.sh/capacity-type"}
		with input as {"pool": {"trust": trust}, "pod": {"spec": {"containers": [], "nodeSelector": selector}}}
}

spot := {"karpenter.sh/capacity-type": "spot"}

test_untrusted if {
	codes("public", spot) == set()
	codes("public", {}) == {"ACME-SPOT-1"}
}

test_trusted if {
	codes("release", {}) == set()
	codes("release", spot) == {"ACME-SPOT-2"}
	codes("", spot) == {"ACME-SPOT-2"}
}
