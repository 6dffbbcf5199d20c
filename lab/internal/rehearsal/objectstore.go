package rehearsal

import (
	"encoding/json"
	"slices"

	"github.com/ephemeral-castle/castle/internal/config"

	"github.com/ephemeral-castle/castle/lab/internal/datacenter"
)

// bucket finds the S3 bucket in which data outlive the cluster.
func (s *survey) bucket(stages []*config.Stage) error {
	for _, stage := range stages {
		for _, d := range stage.Survivors {
			//nolint:errcheck // the account is not known yet, and need not be
			values, _ := d.Values(stage, config.Scope{})
			if endpoint := values.String("endpoint"); endpoint != "" {
				return s.keep(endpoint, values.String("bucket"), values.String("region"))
			}
		}
	}
	return nil
}

// keep has the lab serve a bucket at an endpoint. Its account is what the lab makes up for the secrets
// AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY of the cluster.
func (s *survey) keep(endpoint, bucket, region string) error {
	o := &datacenter.ObjectStore{Endpoint: endpoint, Bucket: bucket, Region: region}
	if s.LocalSecrets != "" {
		var secrets map[string]string
		if err := json.Unmarshal([]byte(s.LocalSecrets), &secrets); err != nil {
			return err
		}
		o.AccessKey, o.SecretKey = secrets["AWS_ACCESS_KEY_ID"], secrets["AWS_SECRET_ACCESS_KEY"]
	}
	s.ObjectStore = o
	if !slices.Contains(s.Network.Hosts, o.Host()) {
		s.Network.Hosts = append(s.Network.Hosts, o.Host())
	}
	return nil
}
