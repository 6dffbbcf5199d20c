package flux

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"helm.sh/helm/v3/pkg/release"
	helmstorage "helm.sh/helm/v3/pkg/storage/driver"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

// want is the desired state of a HelmRelease.
type want struct {
	name, namespace string // of Helm's release
	step            string // changes with everything that makes for another release
	version         string // of the chart
	url             string // of its archive
	values          map[string]any
	timeout         time.Duration
	create, wait    bool
	origin          origin // the HelmRelease
	retries         int64  // how often a failure is tried again; below 0: for ever
	stalled         string // why it is not tried any more
}

// failure counts the failures of a step and holds the last message.
type failure struct {
	times int64
	last  error
}

// reconcile brings a release to the desired state of its HelmRelease.
func (h *helm) reconcile(ctx context.Context, r *unstructured.Unstructured) error {
	if r.GetDeletionTimestamp() != nil {
		return h.finish(ctx, r)
	}
	if err := hold(ctx, h.w, helmReleases(), r); err != nil {
		return err
	}
	blocked, wanted, chart := h.prepare(ctx, r)
	revision, message := 0, ""
	if blocked == nil {
		revision, message, blocked = h.bring(ctx, wanted)
	}
	return report(ctx, h.w, helmReleases(), r, func(status map[string]any) {
		handled(status, r)
		if chart != "" {
			status["helmChart"] = chart
		}
		if wanted != nil {
			status["lastAttemptedRevision"], status["lastAttemptedGeneration"] = wanted.version,
				r.GetGeneration()
			status["lastAttemptedConfigDigest"] = "sha256:" + digest(spelled(wanted.values))
		}
		if revision > 0 {
			status["storageNamespace"] = wanted.namespace
			status["history"] = []any{map[string]any{
				"name": wanted.name, "namespace": wanted.namespace,
				"chartName":    cluster.Text(r.Object, "spec", "chart", "spec", "chart"),
				"chartVersion": wanted.version, "version": int64(revision), "status": "deployed",
			}}
		}
		if blocked != nil && blocked.reason == "Progressing" {
			h.w.SetCondition(status, "Reconciling", "True", blocked.reason, blocked.message,
				r.GetGeneration())
			h.w.SetCondition(status, "Ready", "Unknown", blocked.reason, blocked.message, r.GetGeneration())
			return
		}
		status["observedGeneration"] = r.GetGeneration()
		cluster.DropCondition(status, "Reconciling")
		if wanted != nil && wanted.stalled != "" {
			h.w.SetCondition(status, "Stalled", "True", "RetriesExceeded", wanted.stalled, r.GetGeneration())
		}
		if blocked != nil {
			h.w.SetCondition(status, "Ready", "False", blocked.reason, blocked.message, r.GetGeneration())
			return
		}
		cluster.DropCondition(status, "Stalled")
		h.w.SetCondition(status, "Released", "True", "InstallSucceeded", message, r.GetGeneration())
		h.w.SetCondition(status, "Ready", "True", "InstallSucceeded", message, r.GetGeneration())
	})
}

// prepare finds the prerequisites of a release, or returns the obstacle that blocks it.
func (h *helm) prepare(ctx context.Context, r *unstructured.Unstructured) (*obstacle, *want, string) {
	needs, _, err := unstructured.NestedSlice(r.Object, "spec", "dependsOn")
	if err != nil {
		return &obstacle{"DependencyNotReady", err.Error()}, nil, ""
	}
	for _, need := range needs {
		one, _ := need.(map[string]any)
		namespace := firstOf(cluster.Text(one, "namespace"), r.GetNamespace())
		other, err := h.w.Untyped.Resource(helmReleases()).Namespace(namespace).Get(ctx,
			cluster.Text(one, "name"),
			metav1.GetOptions{})
		if err != nil || cluster.ConditionOf(other.Object, "Ready") != "True" ||
			cluster.Whole(other.Object, "status", "observedGeneration") != other.GetGeneration() {
			return notReady(namespace, cluster.Text(one, "name")), nil, ""
		}
	}
	chart, err := h.chart(ctx, r)
	if err != nil {
		return &obstacle{"SourceNotReady", err.Error()}, nil, ""
	}
	where := chart.GetNamespace() + "/" + chart.GetName()
	if cluster.ConditionOf(chart.Object, "Ready") != "True" ||
		cluster.Whole(chart.Object, "status", "observedGeneration") != chart.GetGeneration() {
		return &obstacle{"SourceNotReady", "HelmChart '" + where + "' is not ready: " +
				firstOf(cluster.MessageOf(chart.Object, "Ready"),
					"latest generation of object has not been reconciled")},
			nil, where
	}
	found, url, err := h.version(ctx, chart)
	if err != nil {
		return &obstacle{"SourceNotReady", err.Error()}, nil, where
	}
	values, err := h.values(ctx, r)
	if err != nil {
		return &obstacle{"ValuesError", err.Error()}, nil, where
	}
	w := &want{name: cluster.Text(r.Object, "spec", "releaseName"), namespace: r.GetNamespace(),
		origin:  origin{r.GetNamespace(), r.GetName()},
		version: found.Version, url: url, values: values,
		timeout: duration(r, 5*time.Minute, "spec", "timeout")}
	if target := cluster.Text(r.Object, "spec", "targetNamespace"); target != "" {
		w.namespace, w.name = target, firstOf(w.name, target+"-"+r.GetName())
	}
	w.name = firstOf(w.name, r.GetName())
	//nolint:errcheck // false
	w.create, _, _ = unstructured.NestedBool(r.Object, "spec", "install", "createNamespace")
	//nolint:errcheck // false
	disabled, _, _ := unstructured.NestedBool(r.Object, "spec", "install", "disableWait")
	w.wait = !disabled
	w.retries = cluster.Whole(r.Object, "spec", "install", "remediation", "retries")
	w.step = digest(fmt.Sprintf("%s %d %s %s %s", r.GetUID(), r.GetGeneration(), w.version,
		r.GetAnnotations()[requested], spelled(values)))
	return nil, w, where
}

// bring installs or upgrades a release and waits until its objects are ready. It calls Helm once
// for each change, and retries a failure as often as the HelmRelease's install.remediation allows.
func (h *helm) bring(ctx context.Context, w *want) (revision int, message string, blocked *obstacle) {
	to, err := h.actions(w.namespace)
	if err != nil {
		return 0, "", &obstacle{"Failed", err.Error()}
	}
	last, err := to.Releases.Last(w.name)
	if err != nil && !errors.Is(err, helmstorage.ErrReleaseNotFound) {
		return 0, "", &obstacle{"Failed", err.Error()}
	}
	due := last == nil || last.Info.Description != description(w.step)
	what, reason := "install", "InstallFailed"
	if last != nil && (due && last.Info.Status == release.StatusDeployed || last.Version > 1) {
		what, reason = "upgrade", "UpgradeFailed"
	}
	named := func(verb string) string {
		return fmt.Sprintf("Helm %s %s for release %s/%s with chart %s", what, verb, w.namespace, w.name,
			chartName(w))
	}
	failed := h.failures[w.step]
	if due && (w.retries < 0 || failed.times <= w.retries) {
		if last, err = h.run(ctx, to, last, w); err != nil {
			failed = failure{failed.times + 1, err}
		} else {
			failed = failure{}
		}
		h.failures[w.step] = failed
	}
	if failed.last != nil {
		if w.retries >= 0 && failed.times > w.retries {
			w.stalled = fmt.Sprintf("Failed to %s after %d attempt(s)", what, failed.times)
		}
		return 0, "", &obstacle{reason, named("failed") + ": " + failed.last.Error()}
	}
	if w.wait {
		waits, err := h.waiting(ctx, last)
		if err == nil && waits != "" {
			if !h.w.Passed("helm "+w.step, w.timeout) {
				return last.Version, "",
					&obstacle{"Progressing", fmt.Sprintf("Running '%s' action with timeout of %s", what,
						w.timeout)}
			}
			err = fmt.Errorf("resource %s: context deadline exceeded", waits)
		}
		if err != nil {
			return 0, "", &obstacle{reason, named("failed") + ": " + err.Error()}
		}
	}
	return last.Version, fmt.Sprintf("Helm %s succeeded for release %s/%s.v%d with chart %s", what,
		w.namespace, w.name, last.Version, chartName(w)), nil
}

// finish uninstalls the release of a deleted HelmRelease, and then removes the finalizer.
func (h *helm) finish(ctx context.Context, r *unstructured.Unstructured) error {
	if !slices.Contains(r.GetFinalizers(), finalizer) {
		return nil
	}
	history, _, _ := unstructured.NestedSlice(r.Object, "status", "history") //nolint:errcheck // written here
	for _, one := range history {
		made, _ := one.(map[string]any)
		if err := h.uninstall(cluster.Text(made, "namespace"), cluster.Text(made, "name")); err != nil {
			return err
		}
	}
	if err := h.dropChart(ctx, r); err != nil {
		return err
	}
	return let(ctx, h.w, helmReleases(), r)
}
