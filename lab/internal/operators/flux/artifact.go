package flux

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

// pullArtifact fetches an artifact, with the library that Flux uses. The reasons and texts are those of
// fluxcd/source-controller, ocirepository_controller.go.
func pullArtifact(ctx context.Context, o *unstructured.Unstructured, secret, certificate *corev1.Secret,
	folder string) (string, *obstacle) {
	address := cluster.Text(o.Object, "spec", "url")
	options, err := transportOf(certificate)
	if err != nil {
		return "", &obstacle{"AuthenticationFailed", fmt.Sprintf("failed to generate transport for '%s': %v",
			address, err)}
	}
	repository, err := repositoryOf(o)
	if err != nil {
		return "", &obstacle{"URLInvalid", fmt.Sprintf("URL validation failed for '%s': %v", address, err)}
	}
	auth, err := credentialsOf(secret, repository.RegistryStr())
	if err != nil {
		return "", &obstacle{"AuthenticationFailed", "failed to get credential: " + err.Error()}
	}
	options = append(options, remote.WithContext(ctx), remote.WithAuth(auth))
	ref, err := referenceOf(o, repository, options)
	if err != nil {
		return "", &obstacle{"ReadOperationFailed", fmt.Sprintf("failed to determine the artifact tag for "+
			"'%s': %v", address, err)}
	}
	described, err := remote.Get(ref, options...)
	if err != nil {
		return "", &obstacle{"OCIArtifactPullFailed", "failed to determine artifact digest: " + err.Error()}
	}
	image, err := described.Image()
	if err != nil {
		return "", &obstacle{"OCIArtifactPullFailed", fmt.Sprintf("failed to pull artifact from '%s': %v",
			address, err)}
	}
	if err := unpack(image, folder); err != nil {
		return "", &obstacle{"OCIArtifactLayerOperationFailed", "failed to extract layer contents from " +
			"artifact: " + err.Error()}
	}
	if _, pinned := ref.(name.Digest); pinned {
		return described.Digest.String(), nil
	}
	return ref.Identifier() + "@" + described.Digest.String(), nil
}

func repositoryOf(o *unstructured.Unstructured) (name.Repository, error) {
	var options []name.Option
	//nolint:errcheck // the API server has validated it
	if insecure, _, _ := unstructured.NestedBool(o.Object, "spec", "insecure"); insecure {
		options = append(options, name.Insecure)
	}
	path, is := strings.CutPrefix(cluster.Text(o.Object, "spec", "url"), "oci://")
	if !is {
		return name.Repository{}, errors.New("URL must be in format 'oci://<domain>/<org>/<repo>'")
	}
	return name.NewRepository(path, options...)
}

// referenceOf is what to pull: a digest goes before a range, and a range before a tag.
func referenceOf(o *unstructured.Unstructured, repository name.Repository,
	options []remote.Option) (name.Reference, error) {
	at := func(field string) string { return cluster.Text(o.Object, "spec", "ref", field) }
	if digest := at("digest"); digest != "" {
		return repository.Digest(digest), nil
	} else if at("semver") == "" {
		return repository.Tag(cmp.Or(at("tag"), name.DefaultTag)), nil
	}
	tags, err := remote.List(repository, options...)
	if err != nil {
		return nil, err
	}
	constraint, err := semver.NewConstraint(at("semver"))
	if err != nil {
		return nil, fmt.Errorf("semver '%s' parse error: %w", at("semver"), err)
	}
	var fitting []*semver.Version
	for _, tag := range tags {
		if v, err := semver.NewVersion(tag); err == nil && constraint.Check(v) {
			fitting = append(fitting, v)
		}
	}
	if len(fitting) == 0 {
		return nil, fmt.Errorf("no match found for semver: %s", at("semver"))
	}
	newest := slices.MaxFunc(fitting, func(a, b *semver.Version) int { return a.Compare(b) })
	return repository.Tag(newest.Original()), nil
}

// credentialsOf reads a config.json of Docker.
func credentialsOf(secret *corev1.Secret, registry string) (authn.Authenticator, error) {
	if secret == nil {
		return authn.Anonymous, nil
	}
	var config struct {
		Auths map[string]authn.AuthConfig `json:"auths"`
	}
	if secret.Type != corev1.SecretTypeDockerConfigJson {
		return authn.Anonymous, nil
	}
	if err := json.Unmarshal(secret.Data[corev1.DockerConfigJsonKey], &config); err != nil {
		return nil, err
	}
	for at, auth := range config.Auths {
		host, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(at, "https://"), "http://"), "/")
		if host == registry {
			return authn.FromConfig(auth), nil
		}
	}
	return authn.Anonymous, nil
}

// transportOf trusts the lab's authority, too: a rehearsal has no certificates of the user's servers.
func transportOf(certificate *corev1.Secret) ([]remote.Option, error) {
	transport, is := remote.DefaultTransport.(*http.Transport)
	if certificate == nil || !is {
		return nil, nil
	}
	if len(certificate.Data["ca.crt"]) == 0 {
		return nil, fmt.Errorf("secret '%s/%s' must contain either 'ca.crt' or both 'tls.crt' and 'tls.key'",
			certificate.Namespace, certificate.Name)
	}
	roots, err := trusted(certificate.Data["ca.crt"])
	if err != nil {
		return nil, err
	}
	transport = transport.Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	return []remote.Option{remote.WithTransport(transport)}, nil
}

// trusted are the authorities of this process and a further one.
func trusted(certificate []byte) (*x509.CertPool, error) {
	roots, err := x509.SystemCertPool()
	if err != nil {
		return nil, err
	}
	if len(certificate) > 0 && !roots.AppendCertsFromPEM(certificate) {
		return nil, errors.New("failed to parse CA certificate")
	}
	return roots, nil
}

// unpack extracts the first layer, which is all that an artifact of Flux has.
func unpack(image v1.Image, folder string) error {
	layers, err := image.Layers()
	if err != nil {
		return err
	}
	if len(layers) == 0 {
		return errors.New("no layers found in artifact")
	}
	packed, err := layers[0].Compressed()
	if err != nil {
		return err
	}
	defer packed.Close() //nolint:errcheck // it was only read
	unzipped, err := gzip.NewReader(packed)
	if err != nil {
		return err
	}
	if err := emptied(folder); err != nil {
		return err
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // each file is closed
	for archive := tar.NewReader(unzipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		content, err := io.ReadAll(archive)
		if err == nil {
			err = root.MkdirAll(filepath.Dir(header.Name), 0o700)
		}
		if err == nil {
			err = root.WriteFile(header.Name, content, 0o600)
		}
		if err != nil {
			return err
		}
	}
}
