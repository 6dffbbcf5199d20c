package volumes

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ephemeral-castle/castle/lab/internal/backupstore"
	"github.com/ephemeral-castle/castle/lab/internal/objectstore/objectstoretest"
	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

const at = "s3://tazlab@eu-south-1/one?backup="

func TestAVolumeComesBackFromItsBackupInAnotherCluster(t *testing.T) {
	server := objectstoretest.Start(t, "../../../../bin")
	s := newSaving(t, server, cluster.Faults{})
	s.has(t, "backuptargets", defaultTarget, map[string]any{"available": true})
	s.claims(t, "data", "w-01")
	s.write(t, "data", "one,")
	if got := s.reads(t, "data"); got != "one," {
		t.Fatalf("the application reads %q", got)
	}
	s.saves(t, "a")
	s.has(
		t,
		"snapshots",
		"snap-a",
		map[string]any{"readyToUse": true, "size": 2 << 20, "restoreSize": 1 << 30,
			"children": "map[volume-head:true]", "userCreated": true},
	)
	s.has(
		t,
		"backups",
		"backup-a",
		map[string]any{"state": "Completed", "progress": 100, "volumeName": "pvc-data",
			"url": at + "backup-a&volume=pvc-data", "snapshotName": "snap-a", "volumeSize": 1 << 30,
			"size":   2 << 20,
			"labels": "map[longhorn.io/volume-access-mode:rwo]", "compressionMethod": "lz4",
			"backupTargetName": defaultTarget},
	)
	s.write(t, "data", "two,")
	s.saves(t, "b")
	s.has(t, "snapshots", "snap-b", map[string]any{"readyToUse": true, "parent": "snap-a"})
	s.has(t, "snapshots", "snap-a", map[string]any{"children": "map[snap-b:true]"})
	s.has(t, "volumes", "pvc-data", map[string]any{"lastBackup": "backup-b", "state": "attached"})

	// Another cluster, that knows the bucket alone.
	other := newSaving(t, server, cluster.Faults{})
	all, err := list[backupVolume](t.Context(), other.w, "backupvolumes", namespace)
	if err != nil || len(all) != 1 || all[0].Name != "pvc-data-62027d3b" ||
		all[0].Status.LastBackupName != "backup-b" || all[0].Status.StorageClassName != "longhorn" ||
		all[0].Status.Size != "1073741824" || all[0].Status.DataStored != "4194304" {
		t.Errorf("backup volumes: %+v, %v", all[0], err)
	}
	for backup, want := range map[string]string{"a": "one,", "b": "one,two,"} {
		other.has(t, "backups", "backup-"+backup, map[string]any{"state": "Completed", "size": 2 << 20})
		name := "again-" + backup
		other.restored(t, name, at+"backup-"+backup+"&volume=pvc-data")
		other.has(t, "volumes", name, map[string]any{"state": "detached", "restoreRequired": false,
			"restoreInitiated": true, "robustness": "unknown"})
		other.has(t, "engines", engineOf(name), map[string]any{"lastRestoredBackup": "backup-" + backup})
		if size := cluster.Text(other.object(t, "volumes", name), "spec", "size"); size != "1073741824" {
			t.Errorf("the size is not that of the backup: %s", size)
		}
		other.claimOf(t, name)
		if got := other.reads(t, name); got != "-" {
			t.Errorf("without a Pod somebody reads %q", got)
		}
		other.write(t, name, "three")
		other.pod(t, name, "w-02")
		other.settle(t)
		if got := other.reads(t, name); got != want+"three" {
			t.Errorf("the restored volume has %q, want %q", got, want+"three")
		}
	}
	// What leaves the bucket leaves the other cluster.
	if err := s.w.Untyped.Resource(Resource("backups")).Namespace(namespace).Delete(t.Context(), "backup-a",
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.settle(t)
	other.patch(t, "backuptargets", defaultTarget,
		`{"spec":{"syncRequestedAt":"`+other.time.Add(time.Second).Format(time.RFC3339)+`"}}`)
	other.settle(t)
	if o := other.object(t, "backups", "backup-a"); o != nil {
		t.Errorf("it is still there: %v", o)
	}
}

func TestADeletedBackupLeavesNoBlock(t *testing.T) {
	server := objectstoretest.Start(t, "../../../../bin")
	s := newSaving(t, server, cluster.Faults{})
	s.claims(t, "data", "w-01")
	s.write(t, "data", "one")
	s.saves(t, "a")
	s.write(t, "data", "two")
	s.saves(t, "b")
	if got := objects(t, server); len(got) != 5 {
		t.Errorf("objects: %v", got)
	}
	if err := remove(t.Context(), s.w, "backups", namespace, "backup-b"); err != nil {
		t.Fatal(err)
	}
	s.settle(t)
	if got := objects(t, server); len(got) != 3 {
		t.Errorf("without backup-b: %v", got)
	}
	all, err := list[backupVolume](t.Context(), s.w, "backupvolumes", namespace)
	if err != nil || len(all) != 1 || all[0].Status.LastBackupName != "backup-a" {
		t.Fatalf("backup volumes: %+v, %v", all, err)
	}
	if err := remove(t.Context(), s.w, "backupvolumes", namespace, all[0].Name); err != nil {
		t.Fatal(err)
	}
	s.settle(t)
	if got := objects(t, server); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
}

func TestAStoppedApplicationWritesNothing(t *testing.T) {
	server := objectstoretest.Start(t, "../../../../bin")
	s := newSaving(t, server, cluster.Faults{})
	s.claims(t, "data", "w-01")
	s.write(t, "data", "one")
	s.deletePod(t, "db", "data")
	s.settle(t)
	s.wants(t, "data", "detached unknown  [w-01 w-02]")
	s.write(t, "data", "two")
	// A snapshot attaches the volume meanwhile, for nobody.
	s.saves(t, "a")
	s.has(t, "backups", "backup-a", map[string]any{"state": "Completed"})
	s.wants(t, "data", "detached unknown  [w-01 w-02]")
	if got := s.reads(t, "data"); got != "-" {
		t.Errorf("somebody reads %q", got)
	}
	s.restored(t, "again", at+"backup-a&volume=pvc-data")
	s.claimOf(t, "again")
	s.pod(t, "again", "w-01")
	s.write(t, "again", "")
	if got := s.reads(t, "again"); got != "one" {
		t.Errorf("the backup has %q", got)
	}
}

func TestAnUnavailableTargetSaysWhy(t *testing.T) {
	server := objectstoretest.Start(t, "../../../../bin")
	s := newSaving(t, server, cluster.Faults{})
	secrets := s.w.Typed.CoreV1().Secrets(namespace)
	set := func(key string) {
		t.Helper()
		if _, err := secrets.Patch(t.Context(), "bucket", types.MergePatchType,
			[]byte(`{"data":{"`+backupstore.SecretKey+`":"`+key+`"}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		s.patch(t, "backuptargets", defaultTarget,
			`{"spec":{"syncRequestedAt":"`+s.time.Add(time.Second).Format(time.RFC3339)+`"}}`)
		s.settle(t)
	}
	set("d3Jvbmc=")
	s.has(t, "backuptargets", defaultTarget, map[string]any{"available": false})
	target := s.object(t, "backuptargets", defaultTarget)
	message := cluster.MessageOf(target, "Unavailable")
	for _, part := range []string{
		"failed to list system backups in s3://tazlab@eu-south-1/one: error listing " +
			"system backup in s3://tazlab@eu-south-1/one: failed to execute: /var/lib/longhorn/",
		"[system-backup list s3://tazlab@eu-south-1/one], output failed to list objects with param: ",
		"AWS Error: SignatureDoesNotMatch", ": exit status 1"} {
		if !strings.Contains(message, part) {
			t.Errorf("condition: %s\nhas no %s", message, part)
		}
	}
	s.claims(t, "data", "w-01")
	s.mustCreate(t, "snapshots", `{"metadata":{"name":"snap-a","namespace":"`+namespace+
		`"},"spec":{"volume":"pvc-data","createSnapshot":true}}`)
	err := s.create(t, "backups", `{"metadata":{"name":"backup-a","namespace":"`+namespace+
		`"},"spec":{"snapshotName":"snap-a"}}`)
	if err == nil || err.Error() != "backup target default is not available" {
		t.Errorf("a backup without a store: %v", err)
	}
	set("bGFiLXNlY3JldC1rZXk=")
	s.has(t, "backuptargets", defaultTarget, map[string]any{"available": true})
	if is := cluster.ConditionOf(s.object(t, "backuptargets", defaultTarget), "Unavailable"); is != "False" {
		t.Errorf("Unavailable is %s", is)
	}
}

// A target of NFS needs no Secret. The lab cannot mount one, and says so.
func TestATargetOfNFSIsNotAvailable(t *testing.T) {
	s := newSaving(t, objectstoretest.Start(t, "../../../../bin"), cluster.Faults{})
	s.patch(t, "backuptargets", defaultTarget, `{"spec":{"backupTargetURL":"nfs://nas.lan:/volume1/data",`+
		`"credentialSecret":"","syncRequestedAt":"`+s.time.Add(time.Second).Format(time.RFC3339)+`"}}`)
	s.settle(t)
	s.has(t, "backuptargets", defaultTarget, map[string]any{"available": false})
	message := cluster.MessageOf(s.object(t, "backuptargets", defaultTarget), "Unavailable")
	if !strings.Contains(message, "the lab knows no backup target but S3") {
		t.Errorf("condition: %s", message)
	}
}

func TestABackupIsIncomplete(t *testing.T) {
	server := objectstoretest.Start(t, "../../../../bin")
	s := newSaving(t, server, cluster.Faults{BackupIncomplete: true})
	s.claims(t, "data", "w-01")
	s.write(t, "data", "one")
	s.saves(t, "a")
	s.has(t, "backups", "backup-a", map[string]any{"state": "Completed", "size": 2 << 20})
	if got := objects(t, server); !slices.Equal(got, []string{"backup_backup-a.cfg", "volume.cfg"}) {
		t.Errorf("objects: %v", got)
	}
	s.restored(t, "again", at+"backup-a&volume=pvc-data")
	s.has(
		t,
		"volumes",
		"again",
		map[string]any{"state": "detached", "robustness": "faulted", "restoreRequired": true},
	)
	volume := s.object(t, "volumes", "again")
	if is, why := cluster.ConditionOf(volume, "Restore"), cluster.OfCondition(volume, "Restore",
		"reason"); is != "False" || why != "RestoreFailure" {
		t.Errorf("Restore: %s %s", is, why)
	}
	events, err := s.w.Typed.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(events.Items) == 0 || events.Items[0].Reason != "FailedRestore" ||
		!strings.Contains(events.Items[0].Message, "AWS Error: NoSuchKey") {
		t.Errorf("events: %+v, %v", events, err)
	}
	// The fault strikes once: the next backup writes the block again.
	s.write(t, "data", "two")
	s.saves(t, "b")
	s.restored(t, "later", at+"backup-b&volume=pvc-data")
	s.has(t, "volumes", "later", map[string]any{"state": "detached", "restoreRequired": false})
}

func TestDataLastsAsLongAsADiskHasIt(t *testing.T) {
	s := newStage(t, cluster.Faults{}, "w-01", "w-02")
	s.claims(t, "data", "w-01")
	ask := func(more, want string) {
		t.Helper()
		claims := s.w.Typed.CoreV1().PersistentVolumeClaims("db")
		if _, err := claims.Patch(t.Context(), "data", types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"`+writeText+`":"`+more+`"}}}`),
			metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		s.look(t)
		if got := s.reads(t, "data"); got != want {
			t.Errorf("the application reads %q, want %q", got, want)
		}
	}
	ask("one,", "one,")
	s.v = New(s.w, s.dir) // another process
	ask("two,", "one,two,")
	if err := RemoveReplicas(s.dir, "w-01"); err != nil {
		t.Fatal(err)
	}
	s.look(t)
	s.wants(t, "data", "attached degraded w-01 [w-02]")
	s.later(t, rebuilds)
	s.wants(t, "data", "attached healthy w-01 [w-01 w-02]")
	ask("three", "one,two,three")
	for _, node := range s.nodes {
		if err := RemoveReplicas(s.dir, node); err != nil {
			t.Fatal(err)
		}
	}
	s.look(t)
	s.later(t, salvages)
	s.wants(t, "data", "attached faulted w-01 []")
	if got := s.reads(t, "data"); got != "-" {
		t.Errorf("the application reads %q of nothing", got)
	}
}

func TestLonghornRefusesWhatIsIncomplete(t *testing.T) {
	s := newSaving(t, objectstoretest.Start(t, "../../../../bin"), cluster.Faults{})
	s.claims(t, "data", "w-01")
	s.mustCreate(t, "snapshots", `{"metadata":{"name":"snap-a","namespace":"`+namespace+
		`"},"spec":{"volume":"pvc-data","createSnapshot":true}}`)
	s.mustCreate(t, "volumes", `{"metadata":{"name":"other","namespace":"`+namespace+
		`"},"spec":{"size":"4096","frontend":"blockdev"}}`)
	cases := map[string][2]string{ // by error
		"failed to get volume absent: ": {
			"snapshots",
			`"spec":{"volume":"absent","createSnapshot":true}`,
		},
		"cannot find the backup volume label for backup ": {"backups", `"spec":{}`},
		"snapshot volume name pvc-data and label volume name other does not match": {"backups",
			`"spec":{"snapshotName":"snap-a"},"labels":{"backup-volume":"other"}`},
		"BackupMode half is not a valid option": {
			"backups",
			`"spec":{"snapshotName":"snap-a","backupMode":"half"}`,
		},
		"failed to get backup absent: ": {"volumes",
			`"spec":{"size":"4096","frontend":"blockdev","fromBackup":"` + at + `absent&volume=pvc-data"}`},
		"cannot get backup and volume name from backup URL": {"volumes",
			`"spec":{"size":"1048576","frontend":"blockdev","fromBackup":"s3://tazlab@eu-south-1/one"}`},
		"invalid volume frontend specified:  for data engine v1 ": {"volumes", `"spec":{"size":"1048576"}`},
	}
	for _, want := range slices.Sorted(maps.Keys(cases)) {
		c := cases[want]
		spec, labels, _ := strings.Cut(c[1], `,"labels"`)
		if labels != "" {
			labels = `,"labels"` + labels
		}
		err := s.create(t, c[0], `{"metadata":{"name":"own","namespace":"`+namespace+`"`+labels+`},`+spec+`}`)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", c[1], err, want)
		}
	}
	o := s.object(t, "volumes", "pvc-data")
	meta := cluster.Nested(o, "metadata")
	if got, want := fmt.Sprint(meta["finalizers"], meta["labels"]),
		"[longhorn.io] map[backup-target:default longhornvolume:pvc-data]"; got != want {
		t.Errorf("volume: %s, want %s", got, want)
	}
}
