package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestConfigMapsAreKeptUntilTheClusterEnds(t *testing.T) {
	k := &kubernetes{objects: map[string]*corev1.ConfigMap{}}
	handler := k.handler()
	const all = "/api/v1/namespaces/default/configmaps"
	call := func(want int, method, path, body string) (m corev1.ConfigMap) {
		t.Helper()
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer,
			httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body)))
		if answer.Code != want {
			t.Fatalf("%s %s: %d, want %d\n%s", method, path, answer.Code, want, answer.Body)
		}
		if err := json.Unmarshal(answer.Body.Bytes(), &m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	const one = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"one"},"data":{"a":"1"}}`
	before := call(http.StatusCreated, http.MethodPost, all, one)
	call(http.StatusConflict, http.MethodPost, all, one)
	call(http.StatusOK, http.MethodPatch, all+"/one", `{"data":{"b":"2"}}`)
	after := call(http.StatusOK, http.MethodGet, all+"/one", "")
	if after.Data["a"] != "1" || after.Data["b"] != "2" || after.UID != before.UID ||
		after.ResourceVersion == before.ResourceVersion {
		t.Errorf("patched: %+v, before: %+v", after, before)
	}
	call(http.StatusOK, http.MethodDelete, all+"/one", "")
	call(http.StatusNotFound, http.MethodGet, all+"/one", "")
	call(http.StatusCreated, http.MethodPost, all, one)
	k.end()
	call(http.StatusNotFound, http.MethodGet, all+"/one", "")
}
