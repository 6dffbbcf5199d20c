package rehearsal

import (
	"slices"
	"testing"
)

func TestTheLabServesTheBucketOfAConfiguration(t *testing.T) {
	s := &survey{LocalSecrets: `{"AWS_ACCESS_KEY_ID":"one","AWS_SECRET_ACCESS_KEY":"two"}`}
	check(t, s.keep("s3.example.org:9443", "backups", "eu-south-1"))
	if o := s.ObjectStore; o.Endpoint != "s3.example.org:9443" || o.Bucket != "backups" ||
		o.Region != "eu-south-1" || o.AccessKey != "one" || o.SecretKey != "two" {
		t.Errorf("%+v", o)
	}
	if !slices.Equal(s.Network.Hosts, []string{"s3.example.org"}) {
		t.Errorf("hosts: %v", s.Network.Hosts)
	}
}
