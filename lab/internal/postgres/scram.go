package postgres

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
)

// iterations and salted are PostgreSQL's own defaults.
const (
	iterations = 4096
	salted     = 16
)

// Verifier returns the value that PostgreSQL stores, and accepts, in place of a password. The
// verifier alone does not permit a login.
// https://www.postgresql.org/docs/current/catalog-pg-authid.html
func Verifier(password string) (string, error) {
	for _, c := range password {
		if c < ' ' || c > '~' {
			return "",
				errors.New("a password with other characters than ASCII's needs a SASLprep, which the lab " +
					"has not")
		}
	}
	salt := make([]byte, salted)
	rand.Read(salt) //nolint:errcheck // it never fails
	key, err := pbkdf2.Key(sha256.New, password, salt, iterations, sha256.Size)
	if err != nil {
		return "", err
	}
	client := sha256.Sum256(keyed(key, "Client Key"))
	text := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$%d:%s$%s:%s", iterations, text(salt), text(client[:]),
		text(keyed(key, "Server Key"))), nil
}

func keyed(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text)) //nolint:errcheck // a hash never fails
	return h.Sum(nil)
}
