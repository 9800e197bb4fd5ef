// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package localcluster

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// tokenSeconds is the lifetime of ServiceAccount tokens: longer than any test or demo.
const tokenSeconds = int64(24 * 60 * 60)

// ServiceAccountConfig returns a configuration that authenticates as an existing ServiceAccount, with a token from the
// TokenRequest API that is valid for a day. It has exactly the permissions of that account, and no client-side rate
// limit.
func (c *Cluster) ServiceAccountConfig(ctx context.Context, namespace, name string) (*rest.Config, error) {
	seconds := tokenSeconds
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	if err := c.client.SubResource("token").Create(ctx, account, request); err != nil {
		return nil, fmt.Errorf("requesting a token of ServiceAccount %s/%s: %w", namespace, name, err)
	}
	config := rest.AnonymousClientConfig(c.Config)
	config.BearerToken = request.Status.Token
	config.QPS = -1
	return config, nil
}

// WriteKubeconfig writes a kubeconfig file for child processes that is equivalent to config and readable only by the
// current user. It contains tokens, client certificates and the certificate authority as data; exec plug-ins and file
// references of config are not written.
func WriteKubeconfig(path string, config *rest.Config) error {
	file := clientcmdapi.NewConfig()
	file.Clusters["local"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	file.AuthInfos["user"] = &clientcmdapi.AuthInfo{
		Token:                 config.BearerToken,
		ClientCertificateData: config.CertData,
		ClientKeyData:         config.KeyData,
	}
	file.Contexts["local"] = &clientcmdapi.Context{Cluster: "local", AuthInfo: "user"}
	file.CurrentContext = "local"
	if err := clientcmd.WriteToFile(*file, path); err != nil {
		return fmt.Errorf("writing a kubeconfig file: %w", err)
	}
	return nil
}
