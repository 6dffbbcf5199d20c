package upstream

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	metalLB = "metallb-controller"
	// webhookPort is the port of MetalLB's webhook. There is no flag for it.
	webhookPort = 9443
)

// certificates is where MetalLB expects the Secret of its webhook: its server knows no other place than the
// one below TMPDIR.
func (f *Controllers) certificates() string {
	return filepath.Join(f.o.Dir, "k8s-webhook-server", "serving-certs")
}

// serve does for MetalLB what a kubelet does for its Pod: it leads calls for the webhook to the process, and
// mounts the Secret that the controller itself fills.
func (f *Controllers) serve(ctx context.Context, d *appsv1.Deployment) error {
	key := ""
	if d != nil {
		key = d.Namespace + "/" + metalLB + ":" + strconv.Itoa(webhookPort)
	}
	if key != f.webhook {
		if f.webhook != "" {
			f.o.Routes.Unregister(f.webhook)
		}
		if f.webhook = key; key != "" {
			f.o.Routes.Register(key, "127.0.0.1:"+strconv.Itoa(webhookPort))
		}
	}
	if d == nil {
		return os.RemoveAll(f.certificates())
	}
	secrets := f.w.Typed.CoreV1().Secrets(d.Namespace)
	secret, err := secrets.Get(ctx, "metallb-webhook-cert", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	var errs []error
	for _, name := range []string{"ca.crt", "ca.key", "tls.key", "tls.crt"} { // the last one is waited for
		errs = append(errs, replace(filepath.Join(f.certificates(), name), secret.Data[name]))
	}
	return errors.Join(append(errs, err)...)
}

// replace writes a file that others read, if its content is another one.
func replace(path string, content []byte) error {
	if old, err := os.ReadFile(path); len(content) == 0 || err == nil && bytes.Equal(old, content) {
		return nil
	}
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
