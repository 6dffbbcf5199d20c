package flux

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"filippo.io/age"
	"filippo.io/age/armor"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ephemeral-castle/castle/internal/gitops"
)

// sealedFor is a Secret as SOPS writes it: a data key for the recipient, and each value sealed at its place.
func sealedFor(t *testing.T, recipient age.Recipient, password string) string {
	t.Helper()
	key := make([]byte, 32)
	rand.Read(key) //nolint:errcheck // never fails
	block, err := aes.NewCipher(key)
	if err != nil {
		t.Fatal(err)
	}
	gcm, err := cipher.NewGCMWithNonceSize(block, 32)
	if err != nil {
		t.Fatal(err)
	}
	iv := make([]byte, 32)
	rand.Read(iv) //nolint:errcheck // never fails
	out := gcm.Seal(nil, iv, []byte(password), []byte("stringData:password:"))
	text := base64.StdEncoding.EncodeToString
	data, tag := out[:len(out)-16], out[len(out)-16:]

	var enc bytes.Buffer
	armored := armor.NewWriter(&enc)
	w, err := age.Encrypt(armored, recipient)
	if err == nil {
		_, err = w.Write(key)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := armored.Close(); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: { name: x, namespace: default }\n"+
		"stringData:\n  password: ENC[AES256_GCM,data:%s,iv:%s,tag:%s,type:str]\n"+
		"sops:\n  mac: x\n  age:\n    - recipient: %s\n      enc: |\n        %s\n", text(data), text(iv),
		text(tag), recipient, strings.ReplaceAll(strings.TrimSpace(enc.String()), "\n", "\n        "))
}

func TestSOPSOpensWithTheKeyOfARecipientAlone(t *testing.T) {
	own, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	s := newStage(0)
	dir := folder(t, map[string]string{"apps/secret.yaml": sealedFor(t, own.Recipient(), "hush")})
	k := &gitops.Kustomization{Key: gitops.Key{Namespace: "flux-system", Name: "apps"}, Path: "apps"}
	refused := func(standIn, want string) {
		t.Helper()
		f := NewFleet(s.World, nil, standIn)
		if _, err := f.build(t.Context(), k, dir, "1"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	opened := func(standIn string) string {
		t.Helper()
		built, err := NewFleet(s.World, nil, standIn).build(t.Context(), k, dir, "1")
		if err != nil || len(built) != 1 || built[0].Object["sops"] != nil {
			t.Fatalf("built %v, %v", built, err)
		}
		password, _, err := unstructured.NestedString(built[0].Object, "stringData", "password")
		if err != nil {
			t.Fatal(err)
		}
		return password
	}
	refused("", "Secret/default/x is SOPS encrypted, configuring decryption is required for this secret to "+
		"be reconciled")
	k.Decrypts, k.Keys = true, "sops-age"
	refused("", `secrets "sops-age" not found`)

	keys := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "flux-system", Name: "sops-age"}}
	s.Add(t, keys)
	refused("", "failed to load age identities")
	give := func(key string) {
		t.Helper()
		keys.Data = map[string][]byte{"age.agekey": []byte("# created: now\n" + key + "\n")}
		_, err := s.World.Typed.CoreV1().Secrets("flux-system").Update(t.Context(), keys,
			metav1.UpdateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	give("AGE-SECRET-KEY-1NONE")
	refused("", "failed to import 'age.agekey' data from sops decryption Secret 'flux-system/sops-age'")
	give(foreign.String())
	refused("", "decryption failed for 'Secret.v1.[noGrp]/x': failed to decrypt and format 'default/x' "+
		"Secret data: cannot get sops data key: Failed to get the data key required to decrypt the SOPS "+
		"file.\n\nGroup 0: FAILED\n  "+own.Recipient().String()+": FAILED")
	give(own.String())
	if got := opened(""); got != "hush" {
		t.Errorf("opened %q", got)
	}
	// A rehearsal has no key of the user's.
	give(foreign.String())
	if got := opened(foreign.String()); !strings.HasPrefix(got, "ENC[") {
		t.Errorf("the stand-in made %q", got)
	}
}
