package longhorn

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ephemeral-castle/castle/internal/store"
	"github.com/ephemeral-castle/castle/internal/survivor"
)

// born is a birth of the data files.
func born(from *survivor.Save) survivor.Birth {
	b := survivor.Born("blue/proxmox", "files", (&volumes{path: "/lh"}).Path, time.Now())
	b.From = from
	return b
}

// save freezes and saves the data of a cluster.
func save(t *testing.T, v *volumes) *survivor.Save {
	t.Helper()
	if _, err := v.Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, err := v.Save(t.Context(), born(nil), true)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func refused(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("got %v, want an error with %q", err, text)
	}
}

func quiet(string) {}

func TestWhatASaveHasIsRestoredBeforeAnythingUsesIt(t *testing.T) {
	c, v := newCluster(t)
	c.volume("photos", "one", "two")
	c.volume("index", "three")
	c.app("gallery", "photos")
	s := save(t, v)
	if len(s.Volumes) != 2 || s.Bytes != 3<<21 || !s.Proved() {
		t.Errorf("%+v", s)
	}

	c.lose()
	all, err := v.Saves(t.Context())
	if err != nil || len(all) != 1 || all[0].ID != s.ID {
		t.Fatalf("%+v, %v", all, err)
	}
	if _, err := v.Prove(t.Context(), all[0]); err != nil {
		t.Fatal(err)
	}
	c.sync()
	b := born(&all[0])
	for range 2 { // a run that was killed does it again
		if err := v.Restore(t.Context(), b, quiet); err != nil {
			t.Fatal(err)
		}
	}
	if err := v.Restored(t.Context(), b); err != nil {
		t.Error(err)
	}
	if got := c.content["pvc-photos"]; !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("restored %q", got)
	}
	if one := c.field(api+"volumes/pvc-photos", "spec", "numberOfReplicas"); one != 2.0 {
		t.Errorf("%v replicas, and it had 2", one)
	}
	if label := c.field(claims+"photos", "metadata", "labels", "app"); label != "photos" {
		t.Errorf("the claim has the label %v: a selector would not find it", label)
	}
	if is, err := v.Live(t.Context()); err != nil || is == nil || is.Birth != b.ID || is.From != "/lh" {
		t.Errorf("%+v, %v", is, err)
	}
}

func TestARestoredVolumeWithOtherBlocksIsNotUsed(t *testing.T) {
	c, v := newCluster(t)
	c.volume("photos", "one", "two")
	s := save(t, v)
	c.lose()
	c.sync()
	c.damage = func(volume string) { c.content[volume][1] = "torn" }
	refused(t, v.Restore(t.Context(), born(s), quiet), "does not have the blocks of save "+s.ID)
	if c.has(claims + "photos") {
		t.Error("the claim was made")
	}
	if used, err := v.InUse(t.Context()); used || err != nil {
		t.Errorf("in use: %v, %v", used, err)
	}
}

func TestAClaimThatExistsAlreadyIsNotHidden(t *testing.T) {
	c, v := newCluster(t)
	c.volume("photos", "one")
	s := save(t, v)
	c.lose()
	c.sync()
	c.add(claims+"photos", `{kind: PersistentVolumeClaim, spec: {volumeName: pvc-empty}}`) // Flux was faster
	refused(t, v.Restore(t.Context(), born(s), quiet), "persistentvolumeclaim web/photos exists already")
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.Contains(c.asked, "POST "+api+"volumes") {
		t.Error("a volume was made nevertheless")
	}
}

func TestAVolumeThatExistsAlreadyIsNotTakenForARestoredOne(t *testing.T) {
	c, v := newCluster(t)
	c.volume("photos", "one")
	s := save(t, v)
	c.mu.Lock()
	delete(c.objects, claims+"photos")
	c.mu.Unlock()
	refused(t, v.Restore(t.Context(), born(s), quiet), "volume pvc-photos (claim web/photos) exists already")
}

func TestABlockThatLacksIsNamedAndWrittenAgain(t *testing.T) {
	c, v := newCluster(t)
	c.volume("photos", "one", "two")
	s := save(t, v)
	sum := checksum([]byte("two"))
	key := folderOf("/lh", "pvc-photos") + "/blocks/" + sum[:2] + "/" + sum[2:4] + "/" + sum + ".blk"
	for name, damage := range map[string]func(store.Store) error{
		"absent": func(in store.Store) error { return in.Delete(t.Context(), key) },
		"empty":  func(in store.Store) error { return in.Create(t.Context(), key, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			if err := c.in.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
			if err := damage(c.in); err != nil {
				t.Fatal(err)
			}
			_, err := v.Prove(t.Context(), *s)
			refused(t, err, "block "+sum)
			// An incremental backup names the block, and does not write it.
			again, err := v.Save(t.Context(), born(nil), true)
			if err != nil {
				t.Fatal(err)
			}
			for _, one := range []survivor.Save{*s, *again} {
				if _, err := v.Prove(t.Context(), one); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestAnotherBackupTargetIsRefused(t *testing.T) {
	c, v := newCluster(t)
	c.volume("photos", "one")
	c.add(api+"backuptargets/default", `{kind: BackupTarget, spec: {backupTargetURL: s3://other@eu/lh/},
		status: {available: true}}`)
	_, err := v.Save(t.Context(), born(nil), false)
	refused(t, err, `set longhorn_backup_target of the stage storage/longhorn to "s3://castle@eu/lh/"`)
}

func TestFreezeStopsWhatUsesTheClaimsAndThawStartsIt(t *testing.T) {
	c, v := newCluster(t)
	c.volume("photos", "one")
	c.app("gallery", "photos")
	c.add(deploys+"other", `{kind: Deployment, spec: {replicas: 1}}`)
	const tidy = "/apis/batch/v1/namespaces/web/cronjobs/tidy"
	c.add(tidy, `{kind: CronJob, spec: {jobTemplate: {spec: {template: {spec: {volumes: [
		{persistentVolumeClaim: {claimName: photos}}]}}}}}}`)
	for i := range 2 {
		if wrote, err := v.Freeze(t.Context()); err != nil || wrote != (i == 0) {
			t.Fatalf("freeze %d: something may have been written: %v, %v", i, wrote, err)
		}
	}
	replicas := func(of string) any { return c.field(deploys+of, "spec", "replicas") }
	suspended := func() any { return c.field(tidy, "spec", "suspend") }
	if replicas("gallery") != 0.0 || replicas("other") != 1.0 || suspended() != true {
		t.Errorf("frozen: %v and %v replicas, suspended %v", replicas("gallery"), replicas("other"),
			suspended())
	}
	for range 2 {
		if err := v.Thaw(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if replicas("gallery") != 3.0 || suspended() != false {
		t.Errorf("thawed: %v replicas, suspended %v", replicas("gallery"), suspended())
	}
	if left := c.field(deploys+"gallery", "metadata", "annotations", frozenFrom); left != nil {
		t.Errorf("the annotation stays: %v", left)
	}
}

func TestAPodThatCastleCannotStopIsNamedBeforeAnythingStops(t *testing.T) {
	c, v := newCluster(t)
	c.volume("photos", "one")
	c.app("gallery", "photos")
	c.add(pods+"agent-x", `{kind: Pod, metadata: {`+owner("DaemonSet", "agent", "1")+`},
		spec: {volumes: [{persistentVolumeClaim: {claimName: photos}}]}}`)
	wrote, err := v.Freeze(t.Context())
	refused(t, err, "pod web/agent-x of daemonset agent uses claims")
	if !wrote || c.field(deploys+"gallery", "spec", "replicas") == 0.0 {
		t.Errorf("wrote %v, and something was stopped", wrote)
	}
	c.add(pods+"agent-x", `{kind: Pod, spec: {volumes: [{persistentVolumeClaim: {claimName: photos}}]}}`)
	_, err = v.Freeze(t.Context())
	refused(t, err, "pod web/agent-x of no controller uses claims")
}

func TestThawStartsWhatARefusedDestroyHasStopped(t *testing.T) {
	c, v := newCluster(t)
	c.volume("photos", "one")
	c.app("gallery", "photos")
	c.app("index", "photos")
	c.stuck = "index"
	ctx, stop := context.WithTimeoutCause(t.Context(), time.Second, errors.New("not saved in time"))
	defer stop()
	if _, err := v.Freeze(ctx); err == nil {
		t.Error("frozen, although a Pod does not end")
	}
	if err := v.Thaw(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"gallery", "index"} {
		if n := c.field(deploys+name, "spec", "replicas"); n != 3.0 {
			t.Errorf("%s has %v replicas", name, n)
		}
	}
}

func TestAWorkloadThatAnOperatorStartsAgainIsNamed(t *testing.T) {
	c, v := newCluster(t)
	c.volume("photos", "one")
	c.add(deploys+"gallery", `{kind: Deployment, metadata: {annotations: {castle.ephemeral/frozen-from: "3"}},
		spec: {replicas: 3}}`)
	_, err := v.Freeze(t.Context())
	refused(t, err, "deployment web/gallery was started again")
}

func TestOldBackupsEndWithTheirDocuments(t *testing.T) {
	c, v := newCluster(t)
	c.volume("photos", "one")
	foreign := api + "backups/nightly"
	c.add(foreign, `{kind: Backup, status: {labels: {castle.ephemeral/data: files}}}`)
	for range 21 {
		if _, err := v.Save(t.Context(), born(nil), false); err != nil {
			t.Fatal(err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	kinds := map[string]int{}
	for at := range c.objects {
		kinds[path.Base(path.Dir(at))]++
	}
	if _, there := c.objects[foreign]; !there || kinds["backups"] != 20+1 || kinds["snapshots"] != 1 {
		t.Errorf("%v, a backup of somebody else: %v", kinds, there)
	}
}

func TestADocumentThatLeadsElsewhereIsRefused(t *testing.T) {
	c, v := newCluster(t)
	c.volume("photos", "one")
	good := save(t, v)
	for name, change := range map[string]func(*survivor.Volume){
		"another namespace": func(of *survivor.Volume) { of.Namespace = "kube-system" },
		"a folder above":    func(of *survivor.Volume) { of.Name = "../../other" },
		"another's backup":  func(of *survivor.Volume) { of.Backup = "nightly" },
		"no digest":         func(of *survivor.Volume) { of.Digest = "" },
	} {
		t.Run(name, func(t *testing.T) {
			s := *good
			s.Volumes = slices.Clone(good.Volumes)
			change(&s.Volumes[0])
			if err := v.valid(s); err == nil {
				t.Error("it was accepted")
			}
		})
	}
}

func TestABlockOfZerosCountsAsNone(t *testing.T) {
	some := block{0, checksum([]byte("one"))}
	for _, size := range []int{2 << 20, 16 << 20} {
		if digest([]block{{1 << 30, checksum(make([]byte, size))}, some}) != digest([]block{some}) {
			t.Errorf("a block of %d zeros counts", size)
		}
	}
	elsewhere := block{2 << 20, some.BlockChecksum}
	if digest([]block{some}) == digest(nil) || digest([]block{elsewhere}) == digest([]block{some}) {
		t.Error("a block counts by its checksum and its offset")
	}
}
