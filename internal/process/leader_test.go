package process

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestALeaderRunsTheProgramInAGroupOfItsOwn(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-c", `echo $$ "$1"; cut -d' ' -f5 "/proc/$$/stat"; env`, "sh", "an argument")
	cmd.Env = append(os.Environ(), leads+"="+shell)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	want := fmt.Sprintf("%d an argument\n%[1]d\n", cmd.Process.Pid)
	if text := string(out); err != nil || !strings.HasPrefix(text, want) || strings.Contains(text, leads) {
		t.Errorf("%v, %s\nwant: %s", err, out, want)
	}
	cmd = exec.Command(self)
	cmd.Env = append(os.Environ(), leads+"=/nowhere")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "/nowhere") {
		t.Errorf("without the program: %v, %s", err, out)
	}
}
