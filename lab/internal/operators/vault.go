package operators

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

var errNoSecret = errors.New("secret does not exist")

// vaultClient is the little that External Secrets wants of Vault.
type vaultClient struct {
	http    *http.Client
	address string
	token   string
	lent    bool // the token is of a login, and not the user's own
}

// lookup checks that Vault accepts the token.
func (v *vaultClient) lookup(ctx context.Context) error {
	return v.call(ctx, http.MethodGet, "auth/token/lookup-self", nil, nil)
}

// leave revokes the token of a login. It ignores an error, as External Secrets does.
func (v *vaultClient) leave(ctx context.Context) {
	if v.lent {
		v.call(ctx, http.MethodPut, "auth/token/revoke-self", nil, nil) //nolint:errcheck // see above
	}
}

// read returns the data at a path.
func (v *vaultClient) read(ctx context.Context, path string) (map[string]any, error) {
	var answer struct{ Data map[string]any }
	err := v.call(ctx, http.MethodGet, path, nil, &answer)
	return answer.Data, err
}

// call reports the answer of Vault, never the request.
func (v *vaultClient) call(ctx context.Context, method, path string, body, answer any) error {
	var sent io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		sent = bytes.NewReader(b)
	}
	request, err := http.NewRequestWithContext(ctx, method, v.address+"/v1/"+path, sent)
	if err != nil {
		return err
	}
	request.Header.Set("X-Vault-Token", v.token)
	response, err := v.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	content, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return err
	}
	if response.StatusCode >= http.StatusBadRequest {
		var answer struct{ Errors []string }
		known := json.Unmarshal(content, &answer) == nil
		if known && len(answer.Errors) == 0 && response.StatusCode == http.StatusNotFound {
			return errNoSecret // nothing is there, or what was is deleted
		}
		if len(answer.Errors) == 0 {
			answer.Errors = []string{response.Status}
		}
		return fmt.Errorf("vault: %s %s: %w", method, path, errors.New(strings.Join(answer.Errors, "; ")))
	}
	if answer == nil {
		return nil
	}
	numbers := json.NewDecoder(bytes.NewReader(content))
	numbers.UseNumber()
	return numbers.Decode(answer)
}

// secretAt is the path of a secret below a store's engine. The key may name the engine
// itself, and for version 2 its data, too.
func secretAt(provider map[string]any, key string) string {
	mount, second := cluster.Text(provider, "path"), cluster.Text(provider, "version") != "v1"
	if mount == "" {
		if strings.Contains(key, "/data/") {
			return key
		}
		mount, key, _ = strings.Cut(key, "/")
	} else if below, named := strings.CutPrefix(key, mount+"/"); named {
		key = below
		if second {
			key = strings.TrimPrefix(key, "data/")
		}
	}
	if second {
		mount += "/data"
	}
	return mount + "/" + key
}

// secret reads a secret of a KV engine, of the version that the store names.
func (v *vaultClient) secret(ctx context.Context, provider map[string]any,
	key string) (map[string]any, error) {
	found, err := v.read(ctx, secretAt(provider, key))
	if err != nil {
		return nil, fmt.Errorf("cannot read secret data from Vault: %w", err)
	}
	if cluster.Text(provider, "version") == "v1" {
		return found, nil
	}
	data, there := found["data"]
	if !there {
		return nil, errors.New("failed to find data field")
	}
	if found, _ = data.(map[string]any); found == nil {
		return nil, errNoSecret
	}
	return found, nil
}

// bytesOf is a value of Vault's as a Secret holds it: a text as it is, nothing as
// nothing, and all else as JSON.
func bytesOf(value any) ([]byte, error) {
	switch v := value.(type) {
	case string:
		return []byte(v), nil
	case nil:
		return nil, nil
	}
	return json.Marshal(value)
}
