package terraform

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
)

func diagnose(t *testing.T, command string, lines ...string) error {
	t.Helper()
	s := running(&Root{})
	feed(t, s, strings.Join(lines, "\n"))
	return s.failure(command, errors.New("exit status 1"))
}

const (
	halted = `{"type":"diagnostic","diagnostic":{"severity":"error","summary":"execution ` +
		`halted","detail":""}}`
	quota = `{"type":"diagnostic","diagnostic":{"severity":"error","summary":"creating ` +
		`VM","detail":"quota\n  exceeded.\n\nRead the ` +
		`manual.","address":"proxmox_vm.node[\"cp\"]","range":{"filename":"main.tf","start":{"line":12}}}}`
	locked = `{"type":"diagnostic","diagnostic":{"severity":"error","summary":"Error acquiring the state ` +
		`lock","detail":"Error message: resource temporarily unavailable\nLock Info:"}}`
	stale = `{"type":"diagnostic","diagnostic":{"severity":"error","summary":"Saved plan is ` +
		`stale","detail":"x"}}`
)

func TestErrorIsTheFirstRootCauseInOneLine(t *testing.T) {
	err := diagnose(t, "apply", halted, quota)
	if got, want := err.Error(), `proxmox_vm.node["cp"]: creating VM: quota exceeded. (main.tf:12); and `+
		`1 more`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestErrorContinuesAfterAColon(t *testing.T) {
	err := diagnose(t, "plan", `{"type":"diagnostic","diagnostic":{"severity":"error","summary":"Failed",`+
		`"detail":"2 problems:\n\n- no schema\n- no plugin\n\nAdvice."}}`)
	if got, want := err.Error(), "Failed: 2 problems: - no schema - no plugin"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestErrorQuotesTheServiceAndNotTheAdvice(t *testing.T) {
	err := diagnose(t, "plan", `{"type":"diagnostic","diagnostic":{"severity":"error","summary":"Unable `+
		`to Create Infisical API Client","detail":"An unexpected error occurred. If the error is not `+
		`clear, please get in touch.\n\nInfisical Client Error: Invalid credentials"}}`)
	if got, want := err.Error(), "Unable to Create Infisical API Client: Infisical Client Error: Invalid "+
		"credentials"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestAnErrorInTextLeavesOutTheSourceThatItQuotes(t *testing.T) {
	s := running(&Root{})
	if _, err := s.stderr().Write([]byte(`
Error: Invalid value for variable

  on castle.auto.tfvars.json line 8:
   8:   "nodes": {
   9:     "cp-01": {
  10:       "role": "controlplane"
  11:     }
  12:   },
    ├────────────────
    │ var.nodes is map of object with 2 elements

An even number of nodes is not allowed.

This was checked by the validation rule at variables.tf:38,3-13.
`)); err != nil {
		t.Fatal(err)
	}
	got := s.failure("import", errors.New("exit status 1")).Error()
	if want := "Invalid value for variable: An even number of nodes is not allowed. " +
		"(castle.auto.tfvars.json:8)"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestErrorWithoutDiagnosticsIsTheLastLine(t *testing.T) {
	if got, want := diagnose(t, "init", "something", "", "panic: out of memory").Error(),
		"terraform init: panic: out of memory"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := diagnose(t, "init").Error(), "terraform init: exit status 1"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestALongErrorKeepsItsCauseAtTheEnd(t *testing.T) {
	cause := "could not write /state/" + strings.Repeat("long/", 100) + "lock: no space left on device"
	locking := "Error locking state: [{Error message: " + cause + "\n\nTerraform acquires a state lock. }]"
	for _, d := range []Diagnostic{
		{Summary: "Error acquiring the state lock", Detail: cause}, {Summary: locking},
	} {
		err := &Error{Command: "init", Diagnostics: []Diagnostic{d}}
		if text := err.Error(); !strings.HasSuffix(text, "no space left on device") || len(text) > 500 {
			t.Errorf("got %q", text)
		}
	}
}

func TestErrorNamesTheErroredState(t *testing.T) {
	r, home := fake(t)
	errored := filepath.Join(r.Dir, "errored.tfstate")
	writeFile(t, errored, "{}")
	writeFile(t, filepath.Join(home, "apply.out"), quota)
	writeFile(t, filepath.Join(home, "apply.exit"), "1")
	err := r.Apply(t.Context(), nil)
	if err == nil || !strings.HasSuffix(err.Error(), "; the state could not be written and is in "+errored) {
		t.Errorf("got %v", err)
	}
}

func TestErrorKinds(t *testing.T) {
	for text, want := range map[string]error{locked: ErrStateLocked, stale: ErrStalePlan, quota: nil} {
		err := diagnose(t, "apply", text)
		for _, kind := range []error{ErrStateLocked, ErrStalePlan, ErrNoSuchObject} {
			if is := errors.Is(err, kind); is != (kind == want) {
				t.Errorf("%v is %v: %v", err, kind, is)
			}
		}
	}
}

func TestImportRecognisesAMissingObject(t *testing.T) {
	for text, want := range map[string]bool{
		"Error: Cannot import non-existent remote object\n\nWhile attempting to import an existing " +
			"object to\n\"a.b\", the provider detected that no object exists with the given id.": true,
		"Error: unable to read secret\n\nCallGetSingleRawSecretByName: Unsuccessful response [GET] " +
			"[status-code=404] [message=Secret not found]": true,
		"Error: VM 421 does not exist": true,
		"Error: resource address \"a.b\" does not exist in the configuration.\n\nBefore importing this " +
			"resource": false,
		"Error: Failed to read\n\ndial tcp: lookup app.infisical.com: host not found": false,
		"Error: Required plugins are not installed\n\nprovider registry.terraform.io/hashicorp/helm: not " +
			"found": false,
		"Error: Resource already managed by Terraform\n\nTerraform is already managing a remote object " +
			"for a.b.": false,
		"Error: unauthorized\n\n401": false,
		"Error: Secret not found\n\nThe secret with the given ID was not found": true,
		"Error: Unable to Create Infisical API Client\n\nInfisical Client Error: unable to log in " +
			"[status-code=404] [message=\"Route not found\"]": false,
		"Error: Error fetching secret\n\nunexpected error: [status-code=403] [message=\"no permission: " +
			"secret not found\"]": false,
		"Error: Error fetching secret\n\n[status-code=404] [message=\"Folder with path '/a' in " +
			"environment with slug 'prod' not found\"]": false,
		"Error: Error fetching secret\n\n[status-code=404] [message=\"Project with ID 'x' " +
			"not found\"]": false,
	} {
		if got := errors.Is(diagnose(t, "import", text), ErrNoSuchObject); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func TestTextErrorsHaveAddressAndPlace(t *testing.T) {
	err := diagnose(t, "import", "a.b: Importing from ID \"x\"...", "", "Error: Invalid value", "",
		"  with a.b[\"c\"],",
		"  on main.tf line 3, in resource \"a\" \"b\":", "   3:   name = 7", "", "It must be a string.", "")
	if got, want := err.Error(), `a.b["c"]: Invalid value: It must be a string. (main.tf:3)`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
