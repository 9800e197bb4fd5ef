# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

package corral.template

import data.corral.library.allowed

# METADATA
# scope: rule
# title: Service accounts by name
# description: >-
#  A pod's service account must be default or one of data.library.serviceAccounts.allowed. Its tokens for audiences other
#  than the API server must be for one of audiences, and its certificates must be from one of signers.
# custom:
#  code: CORRAL-SA-001
#  family: serviceAccounts
#  severity: high
#  remediation: remove it, or add it to library.serviceAccounts
#  only_with: [serviceAccountName, serviceAccount, audience, signerName]
deny contains {"msg": sprintf("the pod acts as or for %s", [name]), "path": sprintf("spec.%s", [path])} if {
	data.library.serviceAccounts
	some [path, name] in corral.unlisted(input.pod.spec, allowed.service_accounts)
}

# METADATA
# scope: rule
# title: Tokens of accounts that are named
# description: >-
#  A pod may mount a token for the API server only if its service account is one of
#  data.library.serviceAccounts.allowed.
# custom:
#  code: CORRAL-SA-002
#  family: serviceAccounts
#  severity: high
#  remediation: set automountServiceAccountToken to false, or add the account to library.serviceAccounts.allowed
#  only_with: [automountServiceAccountToken, serviceAccountToken]
deny contains {"msg": "the pod has a token of its service account for the API server", "path": sprintf("spec.%s", [path])} if {
	data.library.serviceAccounts
	some path in service_account_tokens
	account := [name | some field in ["serviceAccountName", "serviceAccount"]; name := input.pod.spec[field]; name != ""]
	corral.unlisted({"account": array.concat(account, ["default"])[0]}, [[["account"], allowed.accounts]]) != set()
}

service_account_tokens contains "automountServiceAccountToken" if input.pod.spec.automountServiceAccountToken

service_account_tokens contains sprintf("volumes[%d].projected.sources[%d].serviceAccountToken", [i, j]) if {
	token := input.pod.spec.volumes[i].projected.sources[j].serviceAccountToken
	object.get(token, "audience", "") == ""
}
