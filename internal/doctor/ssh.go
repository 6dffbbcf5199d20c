package doctor

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/ephemeral-castle/castle/internal/doctor/finding"
)

// sshTime bounds a whole exchange with a Git server.
const sshTime = 15 * time.Second

// repositoryBySSH checks the repository with the deploy key and the host keys that Flux gets.
func (r *checkRun) repositoryBySSH(ctx context.Context, address *url.URL) []finding.Finding {
	key, hosts := r.text("git_ssh_private_key"), r.text("git_ssh_known_hosts")
	if (key == "" || hosts == "") && r.secrets.unread != "" {
		return finding.Unchecked(fmt.Sprintf("the key for %s is not known: %s", address, r.secrets.unread))
	}
	refs, err := referencesBySSH(ctx, address, key, hosts)
	if err != nil {
		return finding.Obstacle("check git_url, that GIT_SSH_PRIVATE_KEY is a deploy key of this "+
			"repository, and that GIT_SSH_KNOWN_HOSTS is what ssh-keyscan prints for the server",
			"%s: %v", address, finding.Reason(ctx, err))
	}
	return r.hasBranch(address.String(), refs)
}

// referencesBySSH runs git-upload-pack on the server, and reads the references that it sends first.
func referencesBySSH(ctx context.Context, address *url.URL, key, hosts string) (string, error) {
	signer, err := ssh.ParsePrivateKey([]byte(key))
	if err != nil { // the error quotes no key
		return "", fmt.Errorf("the private key cannot be read: %w", err)
	}
	known, err := knownHosts(hosts)
	if err != nil {
		return "", err
	}
	ctx, stop := context.WithTimeout(ctx, sshTime)
	defer stop()
	at := net.JoinHostPort(address.Hostname(), cmp.Or(address.Port(), "22"))
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", at)
	if err != nil {
		return "", err
	}
	defer context.AfterFunc(ctx, func() { conn.Close() })() //nolint:errcheck // it ends what waits for it
	opened, channels, requests, err := ssh.NewClientConn(conn, at, &ssh.ClientConfig{
		User: address.User.Username(), Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)},
		HostKeyCallback: known, HostKeyAlgorithms: algorithms(known, at, conn.RemoteAddr()),
	})
	if err != nil {
		return "", errors.Join(hostKeyReason(err), conn.Close())
	}
	client := ssh.NewClient(opened, channels, requests)
	defer client.Close() //nolint:errcheck // it was only read
	session, err := client.NewSession()
	if err != nil {
		return "", err
	}
	out, err := session.StdoutPipe()
	if err != nil {
		return "", err
	}
	var complaint bytes.Buffer
	session.Stderr = &complaint
	path := strings.ReplaceAll(address.Path, "'", `'\''`)
	if err := session.Start("git-upload-pack '" + path + "'"); err != nil {
		return "", err
	}
	refs, err := readReferences(out)
	if err != nil && session.Wait() != nil && complaint.Len() > 0 {
		err = errors.New(strings.Join(strings.Fields(complaint.String()), " "))
	}
	return refs, err
}

// knownHosts reads host keys. The package reads files alone; what it gets is public.
func knownHosts(text string) (ssh.HostKeyCallback, error) {
	dir, err := os.MkdirTemp("", "castle-known-hosts-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // it holds nothing of value
	file := filepath.Join(dir, "known_hosts")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	known, err := knownhosts.New(file)
	if err != nil {
		return nil, errors.New("the known hosts cannot be read: each line is a host, a type and a key")
	}
	return known, nil
}

// algorithms are those of the server's known keys: a server has keys of several types, and sends the one that
// the client prefers. nil stands for all.
func algorithms(known ssh.HostKeyCallback, at string, remote net.Addr) (all []string) {
	none, err := ssh.NewPublicKey(ed25519.PublicKey(make([]byte, ed25519.PublicKeySize)))
	if err != nil {
		return nil
	}
	of, is := errors.AsType[*knownhosts.KeyError](known(at, remote, none))
	if !is {
		return nil
	}
	for _, key := range of.Want {
		if key.Key.Type() == ssh.KeyAlgoRSA {
			all = append(all, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256)
		}
		all = append(all, key.Key.Type())
	}
	return all
}

// hostKeyReason says which host key is not the known one.
func hostKeyReason(err error) error {
	if of, is := errors.AsType[*knownhosts.KeyError](err); is && len(of.Want) == 0 {
		return errors.New("the server is not among the known hosts")
	} else if is {
		return errors.New("the server's host key is not the known one")
	}
	return err
}

// readReferences reads pkt-lines up to the first flush: https://git-scm.com/docs/gitprotocol-pack.
func readReferences(from io.Reader) (string, error) {
	var all strings.Builder
	for all.Len() < 32<<20 {
		var length [4]byte
		if _, err := io.ReadFull(from, length[:]); err != nil {
			return "", err
		}
		var n int
		if _, err := fmt.Sscanf(string(length[:]), "%04x", &n); err != nil || n != 0 && n < 4 {
			return "", errors.New("not a Git server: its answer has no lines of Git")
		}
		if n == 0 {
			break
		}
		line := make([]byte, n-4)
		if _, err := io.ReadFull(from, line); err != nil {
			return "", err
		}
		// The first one carries the server's capabilities after a zero byte.
		all.WriteString(strings.ReplaceAll(string(line), "\x00", "\n"))
	}
	return all.String(), nil
}
