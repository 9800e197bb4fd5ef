# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

package corral.cookbook.node_selector_test

import data.corral.template

parameters := {"label": "purpose", "value": "ci"}

codes(spec) := {finding.code | some finding in (denied | warned)} if {
	denied := template.deny with data.parameters as parameters with input as {"pod": {"spec": spec}}
	warned := template.warn with data.parameters as parameters with input as {"pod": {"spec": spec}}
}

test_good if codes({"nodeSelector": {"purpose": "ci"}, "tolerations": [{"key": "purpose", "operator": "Exists"}]}) == set()

test_no_selector if {
	codes({}) == {"ACME-NODE-1", "ACME-NODE-3"}
	codes({"nodeSelector": {"purpose": "web"}}) == {"ACME-NODE-1", "ACME-NODE-3"}
}

test_no_scheduler if "ACME-NODE-2" in codes({"nodeSelector": {"purpose": "ci"}, "nodeName": "worker-1"})
