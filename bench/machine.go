package main

import (
	"context"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// machine is where and with what the bench ran.
type machine struct {
	Date, Processor, Kernel string
	Cores                   int
	Memory                  int64  // bytes
	Load                    string // of the last 1, 5 and 15 minutes, before the first command
	Nice                    int    // the priority that the tools inherit
	Versions                []string
}

func look(ctx context.Context, p programs) (machine, error) {
	m := machine{Date: time.Now().UTC().Format(time.DateOnly), Cores: runtime.NumCPU(),
		Processor: field("/proc/cpuinfo", "model name"), Kernel: file("/proc/sys/kernel/osrelease")}
	kib, _ := strconv.ParseInt(strings.TrimSuffix(field("/proc/meminfo", "MemTotal"), " kB"), 10, 64)
	m.Memory = kib << 10
	m.Load = strings.Join(strings.Fields(file("/proc/loadavg"))[:3], " ")
	if stat := file("/proc/self/stat"); stat != "" {
		fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
		m.Nice, _ = strconv.Atoi(fields[16])
	}
	for _, args := range [][]string{{p.castle, "version"}, {p.terraform, "version"}} {
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Env = []string{"HOME=" + os.TempDir(), "CHECKPOINT_DISABLE=1"}
		out, err := cmd.Output()
		if err != nil {
			return m, fmt.Errorf("%s: %w", strings.Join(args, " "), err)
		}
		first, _, _ := strings.Cut(string(out), "\n")
		m.Versions = append(m.Versions, first)
	}
	// Terragrunt learns its version from the build of a release; this one knows the module's.
	info, err := buildinfo.ReadFile(p.terragrunt)
	if err == nil {
		m.Versions = append(m.Versions, "Terragrunt "+info.Main.Version)
	}
	return m, err
}

func (m machine) write(b *strings.Builder) {
	fmt.Fprintf(b, "- %s, %d cores of %s, %.1f GiB of memory, Linux %s\n", m.Date, m.Cores, m.Processor,
		float64(m.Memory)/(1<<30), m.Kernel)
	fmt.Fprintf(b, "- Load before the first command (1, 5 and 15 minutes): %s; nice %d\n", m.Load, m.Nice)
	fmt.Fprintf(b, "- %s\n", strings.Join(m.Versions, ", "))
}

// file returns the content of a file of /proc, or nothing.
func file(name string) string {
	text, _ := os.ReadFile(name)
	return strings.TrimSpace(string(text))
}

// field returns the value of the first line "NAME : VALUE" of a file.
func field(name, of string) string {
	for line := range strings.Lines(file(name)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == of {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
