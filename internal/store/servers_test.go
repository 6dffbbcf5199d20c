//go:build integration

package store

import (
	"testing"

	"github.com/ephemeral-castle/castle/internal/store/storetest"
)

func TestPostgresConforms(t *testing.T) {
	server := storetest.Postgres(t)
	server.Setenv(t)
	conforms(t, server)
}

func TestS3Conforms(t *testing.T) {
	server := storetest.S3(t)
	server.Setenv(t)
	conforms(t, server)
}
