//go:build integration

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// call asks Proxmox or Infisical, as whoever holds their credentials could.
func call(method, address, authorization string, body any) ([]byte, error) {
	bundle, err := os.ReadFile(os.Getenv("SSL_CERT_FILE"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	content, err := contentFor(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequest(method, address, content)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", authorization)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	defer transport.CloseIdleConnections()
	return answerOf((&http.Client{Transport: transport, Timeout: time.Minute}).Do(req))
}

func contentFor(body any) (io.Reader, error) {
	if body == nil {
		return nil, nil
	}
	text, err := json.Marshal(body)
	return bytes.NewReader(text), err
}

// proxmox sends a request to a path of the API and returns the data of the response.
func (l *soakLab) proxmox(method, path string, body any) json.RawMessage {
	l.t.Helper()
	address := strings.TrimSuffix(os.Getenv("PROXMOX_VE_ENDPOINT"), "/") + "/api2/json/" + path
	answer, err := call(method, address, "PVEAPIToken="+os.Getenv("PROXMOX_VE_API_TOKEN"), body)
	must(l.t, err)
	var response struct{ Data json.RawMessage }
	must(l.t, json.Unmarshal(answer, &response))
	return response.Data
}

// node is the path of the only Proxmox node.
const node = "nodes/proxmox/"

// rows is an answer that is a list.
func (l *soakLab) rows(path string) (rows []map[string]any) {
	must(l.t, json.Unmarshal(l.proxmox("GET", path, nil), &rows))
	return rows
}

// infisical asks Infisical for secrets.
func (l *soakLab) infisical(method, folder, key string, body any) []byte {
	l.t.Helper()
	host := os.Getenv("INFISICAL_HOST")
	answer, err := call("POST", host+"/api/v1/auth/universal-auth/login", "", map[string]string{
		"clientId":     os.Getenv("INFISICAL_UNIVERSAL_AUTH_CLIENT_ID"),
		"clientSecret": os.Getenv("INFISICAL_UNIVERSAL_AUTH_CLIENT_SECRET"),
	})
	must(l.t, err)
	var login struct{ AccessToken string }
	must(l.t, json.Unmarshal(answer, &login))
	q := url.Values{"workspaceId": {soakProject}, "environment": {"prod"}, "secretPath": {folder}}
	answer, err = call(method, host+"/api/v3/secrets/raw"+key+"?"+q.Encode(),
		"Bearer "+login.AccessToken, body)
	must(l.t, err)
	return answer
}

// cluster asks the cluster's API; an error if there is no cluster.
func (l *soakLab) cluster(method, path string, body any) ([]byte, error) {
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(l.state, "kubeconfig"))
	if err != nil {
		return nil, err
	}
	config.Timeout = 5 * time.Second
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	defer client.CloseIdleConnections()
	content, err := contentFor(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(context.Background(), method, config.Host+path, content)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	return answerOf(client.Do(req))
}
