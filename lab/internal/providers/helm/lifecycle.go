package helm

import (
	"context"
	"fmt"
	"strings"
	"time"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/release"

	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
)

func seconds(v plugin.Values) time.Duration { return time.Duration(v.Int("timeout")) * time.Second }

// createRelease installs, or upgrades what upgrade_install finds. Terraform's
// interrupt does not reach Helm, as in the real provider: Helm finishes or times out.
func (p *provider) createRelease(_ context.Context, c plugin.Change) (plugin.Values, error) {
	v := c.Planned
	to, err := p.configurationFor(v.String("namespace"))
	if err != nil {
		return nil, err
	}
	loaded, err := p.chartOf(v)
	if err != nil {
		return nil, err
	}
	values, err := chartValues(v)
	if err != nil {
		return nil, err
	}
	if err := installable(loaded); err != nil {
		return nil, err
	}
	installed := ""
	if v.Bool("upgrade_install") {
		if installed, err = p.installedVersion(v); err != nil {
			return nil, &plugin.Problem{Summary: "Error checking installed release",
				Detail: fmt.Sprintf("Failed to determine if release exists: %s", err)}
		}
	}
	var made *release.Release
	if installed != "" {
		made, err = upgrade(to, v, loaded, values)
	} else {
		made, err = install(to, v, loaded, values)
	}
	if err == nil {
		return describe(made, v)
	}
	// The state does not keep a release that a failed install left behind: see the package comment.
	if made == nil || !p.exists(v) {
		return nil, &plugin.Problem{Summary: "installation failed", Detail: err.Error()}
	}
	return nil, &plugin.Problem{Summary: "Helm release error", Detail: err.Error()}
}

func install(to *action.Configuration, v plugin.Values, c *chart.Chart,
	values map[string]any) (*release.Release, error) {
	i := action.NewInstall(to)
	i.ChartPathOptions, _ = options(v)
	i.ReleaseName, i.Namespace, i.CreateNamespace = v.String("name"), v.String("namespace"),
		v.Bool("create_namespace")
	i.Wait, i.WaitForJobs, i.Timeout, i.Atomic = v.Bool("wait"), v.Bool("wait_for_jobs"), seconds(v),
		v.Bool("atomic")
	i.SkipCRDs, i.SubNotes, i.DisableHooks = v.Bool("skip_crds"), v.Bool("render_subchart_notes"),
		v.Bool("disable_webhooks")
	i.DisableOpenAPIValidation, i.Replace, i.TakeOwnership = v.Bool("disable_openapi_validation"),
		v.Bool("replace"), v.Bool("take_ownership")
	return i.Run(c, values)
}

func upgrade(to *action.Configuration, v plugin.Values, c *chart.Chart,
	values map[string]any) (*release.Release, error) {
	u := action.NewUpgrade(to)
	u.ChartPathOptions, _ = options(v)
	u.Namespace, u.Force, u.MaxHistory, u.CleanupOnFail = v.String("namespace"), v.Bool("force_update"),
		int(v.Int("max_history")), v.Bool("cleanup_on_fail")
	u.Wait, u.WaitForJobs, u.Timeout, u.Atomic = v.Bool("wait"), v.Bool("wait_for_jobs"), seconds(v),
		v.Bool("atomic")
	u.SkipCRDs, u.SubNotes, u.DisableHooks = v.Bool("skip_crds"), v.Bool("render_subchart_notes"),
		v.Bool("disable_webhooks")
	u.DisableOpenAPIValidation, u.TakeOwnership = v.Bool("disable_openapi_validation"),
		v.Bool("take_ownership")
	u.ResetValues, u.ReuseValues = v.Bool("reset_values"), v.Bool("reuse_values")
	return u.Run(v.String("name"), c, values)
}

func (p *provider) get(v plugin.Values) (*release.Release, error) {
	c, err := p.configuration(v.String("namespace"))
	if err != nil {
		return nil, err
	}
	return action.NewGet(c).Run(v.String("name"))
}

// exists returns false when the API is unreachable: see the package comment.
func (p *provider) exists(v plugin.Values) bool {
	_, err := p.get(v)
	return err == nil
}

func (p *provider) readRelease(_ context.Context, state plugin.Values) (plugin.Values, error) {
	found, err := p.get(state)
	if err != nil {
		return nil, nil //nolint:nilerr // an error is taken for absence: see the package comment
	}
	return describe(found, state)
}

func (p *provider) updateRelease(_ context.Context, c plugin.Change) (plugin.Values, error) {
	to, err := p.configurationFor(c.Planned.String("namespace"))
	if err != nil {
		return nil, err
	}
	loaded, err := p.chartOf(c.Planned)
	if err != nil {
		return nil, err
	}
	values, err := chartValues(c.Planned)
	if err != nil {
		return nil, err
	}
	changed, err := upgrade(to, c.Planned, loaded, values)
	if err != nil {
		return nil, &plugin.Problem{Summary: "Error upgrading chart",
			Detail: fmt.Sprintf("Upgrade failed: %s", err)}
	}
	return describe(changed, c.Planned)
}

func (p *provider) deleteRelease(_ context.Context, state plugin.Values) error {
	if !p.exists(state) {
		return nil
	}
	to, err := p.configurationFor(state.String("namespace"))
	if err != nil {
		return err
	}
	u := action.NewUninstall(to)
	u.Wait, u.DisableHooks, u.Timeout = state.Bool("wait"), state.Bool("disable_webhooks"), seconds(state)
	if _, err := u.Run(state.String("name")); err != nil {
		return &plugin.Problem{Summary: "Error uninstalling release",
			Detail: fmt.Sprintf("Unable to uninstall Helm release %s: %s", state.String("name"), err)}
	}
	return nil
}

func (p *provider) importRelease(_ context.Context, id string) (plugin.Values, error) {
	namespace, name, ok := strings.Cut(id, "/")
	if !ok || strings.Contains(name, "/") {
		return nil, &plugin.Problem{Summary: "Unable to parse import identifier",
			Detail: fmt.Sprintf("Unable to parse identifier %s: Unexpected ID format (%q), expected "+
				"namespace/name", id, id)}
	}
	to, err := p.configurationFor(namespace)
	if err != nil {
		return nil, err
	}
	found, err := action.NewGet(to).Run(name)
	if err != nil {
		return nil, &plugin.Problem{Summary: "Error getting release",
			Detail: fmt.Sprintf("Unable to get Helm release %s: %s", name, err)}
	}
	return imported(p.release().Schema, found)
}
