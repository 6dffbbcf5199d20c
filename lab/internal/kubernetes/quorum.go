package kubernetes

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// lost is the file that stands for an etcd without a quorum: the one real member always has one.
const lost = "etcd-without-quorum"

// SetQuorum has the API server that runs in a directory, or starts there, answer as one whose etcd has a
// quorum or none. Without one it refuses every request for an object, also those of the controllers, and is
// neither ready nor live; a watch that is open stays so. Real clients wait for a refusal until a timeout.
func SetQuorum(dir string, has bool) error {
	file := filepath.Join(dir, lost)
	if !has {
		return os.WriteFile(file, nil, 0o600)
	}
	if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func withoutQuorum(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, lost))
	return err == nil
}

var healthPaths = []string{"healthz", "livez", "readyz"}

// needsEtcd reports whether the answer comes from etcd; that to /version or /apis does not.
func needsEtcd(url string) bool {
	parts := strings.Split(strings.Trim(path.Clean(url), "/"), "/")
	switch {
	case slices.Contains(healthPaths, parts[0]):
		return true
	case parts[0] == "api":
		return len(parts) > 2
	}
	return parts[0] == "apis" && len(parts) > 3
}

// refuse answers as kube-apiserver does when etcd has no leader.
func refuse(w http.ResponseWriter, url string) {
	if name := strings.Split(strings.Trim(url, "/"), "/")[0]; slices.Contains(healthPaths, name) {
		http.Error(w, fmt.Sprintf("[+]ping ok\n[-]etcd failed: reason withheld\n%s check failed", name),
			http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusInternalServerError)
	json.NewEncoder(w).Encode(metav1.Status{ //nolint:errcheck // a client that has gone needs no answer
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Message: "etcdserver: request timed out", Code: http.StatusInternalServerError,
	})
}
