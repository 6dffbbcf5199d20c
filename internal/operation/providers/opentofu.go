package providers

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/opentofu/tofudl/branding"

	"github.com/ephemeral-castle/castle/internal/terraform"
)

var errForged = errors.New("not what OpenTofu has signed")

// releases are where a program's releases are, and the key that signs them.
type releases struct{ site, key string }

// openTofu are the releases of OpenTofu. Its library tofudl, which has the key, would make castle a third
// larger: it parses a template, for which the linker keeps every method of every type.
var openTofu = releases{"https://github.com/opentofu/opentofu/releases/download", branding.DefaultGPGKey}

// download installs a release for a platform such as linux_amd64. The checksums of a release are signed.
func (r releases) download(ctx context.Context, release, platform, to string) error {
	var files [3][]byte
	var err error
	for i, name := range []string{"SHA256SUMS", "SHA256SUMS.gpgsig", platform + ".zip"} {
		address := fmt.Sprintf("%s/v%s/tofu_%s_%s", r.site, release, release, name)
		if files[i], err = get(ctx, address); err != nil {
			return err
		}
	}
	sums, signature, archive := files[0], files[1], bytes.NewReader(files[2])
	keys, err := openpgp.ReadArmoredKeyRing(strings.NewReader(r.key))
	if err != nil {
		return err
	}
	_, err = openpgp.CheckDetachedSignature(keys, bytes.NewReader(sums), bytes.NewReader(signature), nil)
	if err != nil {
		return fmt.Errorf("%w: its checksums: %w", errForged, err)
	}
	sum := fmt.Sprintf("\n%x  tofu_%s_%s.zip\n", sha256.Sum256(files[2]), release, platform)
	if !strings.Contains("\n"+string(sums), sum) {
		return fmt.Errorf("%w: its archive does not have the checksum that is signed", errForged)
	}
	z, err := zip.NewReader(archive, archive.Size())
	if err != nil {
		return err
	}
	content, err := fs.ReadFile(z, terraform.OpenTofu.Program)
	if err != nil {
		return err
	}
	return writeFile(to, content, 0o755)
}
