package proxmox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// finish waits until a task has ended and returns how; anything but success is
// an error. A task goes on when nobody waits for it any more.
func (r *Removal) finish(ctx context.Context, upid string) error {
	parts := strings.Split(upid, ":")
	if len(parts) != 9 || parts[0] != "UPID" {
		return fmt.Errorf("unexpected answer: %q is no task", upid)
	}
	var task struct {
		Status string `json:"status"`
		Exit   string `json:"exitstatus"`
	}
	path := fmt.Sprintf("nodes/%s/tasks/%s/status", url.PathEscape(parts[1]), url.PathEscape(upid))
	err := r.until(ctx, "task "+upid+" still runs", func() (bool, error) {
		err := r.Client.get(ctx, path, &task)
		return task.Status == "stopped", err
	})
	// With warnings it is done as well; what it could not free is looked for later.
	if err == nil && task.Exit != "OK" && !strings.HasPrefix(task.Exit, "WARNINGS") {
		err = fmt.Errorf("task %s: %s", upid, cmp.Or(task.Exit, "ended without a status"))
	}
	return err
}

// until asks until the answer is yes. A question may go unanswered now and then,
// since asking changes nothing; a refusal ends it.
func (r *Removal) until(ctx context.Context, what string, ask func() (bool, error)) error {
	patience := cmp.Or(r.Patience, 10*time.Minute)
	deadline := time.Now().Add(patience)
	for {
		yes, err := ask()
		var e *Error
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case yes && err == nil:
			return nil
		case errors.As(err, &e) && (e.Code == http.StatusUnauthorized || e.Code == http.StatusForbidden):
			return err
		case time.Now().After(deadline):
			if err != nil {
				return fmt.Errorf("%s after %s; last answer: %w", what, patience, err)
			}
			return fmt.Errorf("%s after %s", what, patience)
		}
		if err := sleep(ctx, cmp.Or(r.Interval, time.Second)); err != nil {
			return err
		}
	}
}

// remains looks for volumes that carry the machine's id, on the storages that
// its drives were on. Backups are no remains.
func (c *Client) remains(ctx context.Context, s Subject) (Remains, error) {
	var found Remains
	var storages []string
	own := s.Config.Volumes()
	for _, volume := range own {
		storage, _, _ := strings.Cut(volume, ":")
		if !slices.Contains(storages, storage) {
			storages = append(storages, storage)
		}
	}
	for _, storage := range storages {
		var volumes []struct {
			ID string `json:"volid"`
		}
		path := fmt.Sprintf("nodes/%s/storage/%s/content?content=images&vmid=%s", url.PathEscape(s.Node), url.PathEscape(storage), strconv.Itoa(s.ID))
		if err := c.get(ctx, path, &volumes); err != nil {
			return found, err
		}
		for _, v := range volumes {
			if slices.Contains(own, v.ID) {
				found.Own = append(found.Own, v.ID)
			} else {
				found.Unreferenced = append(found.Unreferenced, v.ID)
			}
		}
	}
	return found, nil
}
