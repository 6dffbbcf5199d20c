//go:build integration

package report_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// probe runs in the page and writes what a reader would notice into its title. It replaces nothing else.
const probe = `<script>
addEventListener("load", () => {
  const found = { errors: window.problems, bars: document.querySelectorAll("#timeline .bar").length,
    width: document.documentElement.scrollWidth, view: innerWidth, faint: [], hint: "", dark: false };
  found.dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const channels = (color) => color.match(/[0-9.]+/g).map(Number);
  const luminance = (color) => {
    const part = channels(color).slice(0, 3).map((c) => {
      c /= 255;
      return c <= 0.03928 ? c / 12.92 : Math.pow((c + 0.055) / 1.055, 2.4);
    });
    return 0.2126 * part[0] + 0.7152 * part[1] + 0.0722 * part[2];
  };
  const contrast = (a, b) => {
    const [x, y] = [luminance(a), luminance(b)].sort((m, n) => n - m);
    return (x + 0.05) / (y + 0.05);
  };
  const below = (node) => {
    for (; node; node = node.parentElement) {
      const color = getComputedStyle(node).backgroundColor;
      if (color !== "transparent" && channels(color)[3] !== 0) return color;
    }
    return "rgb(255, 255, 255)";
  };
  document.querySelectorAll("details").forEach((d) => { d.open = true; });
  document.querySelectorAll("body *").forEach((node) => {
    const own = [...node.childNodes].some((c) => c.nodeType === 3 && c.textContent.trim());
    if (!own || ["SCRIPT", "TITLE"].includes(node.tagName.toUpperCase()) || node.id === "hint") return;
    const style = getComputedStyle(node);
    const color = node instanceof SVGElement ? style.fill : style.color;
    const ratio = contrast(color, below(node));
    if (ratio < 4.5) found.faint.push(node.tagName + node.textContent.trim().slice(0, 30) + ratio);
  });
  document.querySelectorAll("#timeline rect").forEach((bar) => {
    if (bar.classList.contains("between")) return;
    const ratio = contrast(getComputedStyle(bar).fill, below(bar));
    if (ratio < 3) found.faint.push("bar " + bar.getAttribute("class") + " " + ratio);
  });
  const bar = document.querySelector("#timeline .gates");
  bar.dispatchEvent(new PointerEvent("pointermove", { clientX: innerWidth - 2, clientY: 20 }));
  const hint = document.getElementById("hint");
  const box = hint.getBoundingClientRect();
  if (getComputedStyle(hint).display === "block" && box.right <= innerWidth) found.hint = hint.textContent;
  found.width = Math.max(found.width, document.documentElement.scrollWidth);
  document.documentElement.setAttribute("data-found", JSON.stringify(found));
});
</script>`

// problems collects the errors of the page; it comes before everything else.
const problems = `<script>
window.problems = [];
addEventListener("error", (e) => problems.push(e.message || "not loaded: " + e.target.src), true);
addEventListener("securitypolicyviolation", (e) => problems.push(e.blockedURI + " violates the policy"));
for (const level of ["error", "warn"]) console[level] = (...what) => problems.push(what.join(" "));
</script>`

// found is what the probe has found.
type found struct {
	Errors, Faint []string
	Bars          int
	Width, View   int
	Hint          string
	Dark          bool
}

// TestPageInABrowser opens the page in Chromium, as a phone and as a desktop, light and dark: it has its
// bars and their hints, no errors, no text that is hard to read, and nothing wider than the window.
func TestPageInABrowser(t *testing.T) {
	r := newReport()
	var page bytes.Buffer
	if err := r.WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	text := page.String()
	for _, outside := range []string{"http://", "https://", "src=", "@import", "url("} {
		if strings.Contains(text, outside) {
			t.Errorf("the page refers to something outside: %s", outside)
		}
	}
	text = strings.Replace(text, "<head>", "<head>"+problems, 1)
	text = strings.Replace(text, "</body>", probe+"</body>", 1)
	for _, width := range []int{390, 1280} {
		for _, dark := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d dark %t", width, dark), func(t *testing.T) {
				checkPage(t, text, width, dark)
			})
		}
	}
}

func checkPage(t *testing.T, text string, width int, dark bool) {
	got := open(t, text, width, dark)
	if len(got.Errors) > 0 {
		t.Errorf("errors: %q", got.Errors)
	}
	if got.Bars != 8 { // 3 stages with 5 steps
		t.Errorf("%d bars", got.Bars)
	}
	if got.View != width || got.Width > width {
		t.Errorf("a window of %d pixels shows %d of %d", width, got.View, got.Width)
	}
	if len(got.Faint) > 0 {
		t.Errorf("hard to read: %q", got.Faint)
	}
	if !strings.Contains(got.Hint, "platform/machines: gates, 12.0s\netcd open after 12.0s") {
		t.Errorf("the hint is %q", got.Hint)
	}
	if got.Dark != dark {
		t.Errorf("dark: %t, want %t", got.Dark, dark)
	}
}

// open loads the page in a frame of the width, because Chromium's own windows are at least 500 pixels wide,
// and returns what the probe has found in it.
func open(t *testing.T, text string, width int, dark bool) (got found) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "page.html")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--no-first-run", "--allow-file-access-from-files",
		"--user-data-dir=" + filepath.Join(dir, "profile"), "--window-size=1400,1000",
		"--virtual-time-budget=5000", "--dump-dom"}
	if dark {
		args = append(args, "--blink-settings=preferredColorScheme=0")
	} else {
		args = append(args, "--blink-settings=preferredColorScheme=1")
	}
	frame := filepath.Join(dir, "frame.html")
	content := fmt.Sprintf(`
<iframe src="page.html" style="border: 0; width: %dpx; height: 900px"></iframe>
<script>
addEventListener("load", () => {
  const page = document.querySelector("iframe").contentDocument.documentElement;
  document.body.textContent = btoa(unescape(encodeURIComponent(page.getAttribute("data-found"))));
});</script>`, width)
	if err := os.WriteFile(frame, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	chromium := exec.CommandContext(t.Context(), "chromium", append(args, "file://"+frame)...)
	var stderr bytes.Buffer
	chromium.Stderr = &stderr
	out, err := chromium.Output()
	if err != nil {
		t.Fatalf("chromium (make browser installs it): %v\n%s", err, &stderr)
	}
	_, body, _ := strings.Cut(string(out), "<body>")
	body, _, _ = strings.Cut(body, "</body>")
	decoded, err := base64.StdEncoding.DecodeString(strings.TrimSpace(body))
	if err == nil {
		err = json.Unmarshal(decoded, &got)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return got
}
