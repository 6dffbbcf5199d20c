package namespace

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// mount changes what this process and its children see of the file system.
func (s Spec) mount() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("mounts: make private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC,
		""); err != nil {
		return fmt.Errorf("mounts: /proc: %w", err)
	}
	if err := s.names(); err != nil {
		return err
	}
	for _, m := range s.Mounts {
		if err := m.mount(); err != nil {
			return fmt.Errorf("mounts: %s: %w", m.Path, err)
		}
	}
	return nil
}

func (m Mount) mount() error {
	path, err := filepath.EvalSymlinks(m.Path)
	if err != nil {
		return err
	}
	if m.From != "" {
		return unix.Mount(m.From, path, "", unix.MS_BIND|unix.MS_REC, "")
	}
	if err := unix.Mount(path, path, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return err
	}
	// In a user namespace a mount's other restrictions are locked: leaving one out is refused.
	kept := uintptr(
		fs.Flags) & (unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOATIME |
		unix.MS_NODIRATIME | unix.MS_RELATIME)
	return unix.Mount("", path, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|kept, "")
}

// names resolves the given hosts to the front and fails for all other names. It also disables the
// resolvers that reach outside the network: systemd-resolved and nscd listen on sockets of the file
// system.
func (s Spec) names() error {
	hosts := "127.0.0.1 localhost\n::1 localhost\n"
	if name, err := os.Hostname(); err == nil {
		hosts += "127.0.0.1 " + name + "\n"
	}
	for name, address := range s.Names {
		hosts += fmt.Sprintf("%s %s\n", address, name)
	}
	for _, h := range s.Hosts {
		if _, own := s.Names[h]; !own {
			hosts += fmt.Sprintf("%s %s\n", s.Front, h)
		}
	}
	for path, content := range map[string]string{
		"/etc/hosts": hosts, "/etc/resolv.conf": "", "/etc/nsswitch.conf": switches("/etc/nsswitch.conf"),
	} {
		real, err := filepath.EvalSymlinks(path)
		if errors.Is(err, os.ErrNotExist) && path != "/etc/hosts" {
			continue // no file, nobody to ask
		}
		if err != nil {
			return err
		}
		from := filepath.Join(s.Files, filepath.Base(path))
		if err := os.WriteFile(from, []byte(content), 0o644); err != nil {
			return err
		}
		if err := unix.Mount(from, real, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mounts: %s: %w", path, err)
		}
	}
	const nscd = "/var/run/nscd"
	if _, err := os.Stat(nscd); err != nil {
		return nil
	}
	if err := unix.Mount("tmpfs", nscd, "tmpfs", unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("mounts: %s: %w", nscd, err)
	}
	return nil
}

// switches is the machine's name service configuration with host names from
// files only.
func switches(path string) string {
	var out strings.Builder
	out.WriteString("hosts: files\n")
	f, err := os.Open(path)
	if err != nil {
		return out.String()
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if !strings.HasPrefix(strings.TrimSpace(lines.Text()), "hosts:") {
			out.WriteString(lines.Text() + "\n")
		}
	}
	return out.String()
}

// six enables IPv6 in the namespace, if the kernel has it. A whole range needs more than a route: only with
// the last setting, programs may listen at addresses that the loopback does not list.
func six() (bool, error) {
	const settings = "/proc/sys/net/ipv6/"
	if _, err := os.Stat(settings); err != nil {
		return false, nil //nolint:nilerr // an IPv4 cluster does without
	}
	for _, setting := range []string{"conf/all/disable_ipv6=0", "conf/lo/disable_ipv6=0",
		"ip_nonlocal_bind=1"} {
		name, value, _ := strings.Cut(setting, "=")
		if err := os.WriteFile(settings+name, []byte(value), 0o644); err != nil {
			return false, fmt.Errorf("IPv6: %w", err)
		}
	}
	return true, nil
}

// address raises the loopback and gives it the addresses.
func (s Spec) address() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	both, err := six()
	if err != nil {
		return err
	}
	for _, a := range s.Addresses {
		one := &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
		if err := netlink.AddrAdd(lo, &netlink.Addr{IPNet: one}); err != nil &&
			!errors.Is(err, syscall.EEXIST) {
			return fmt.Errorf("address %s: %w", a, err)
		}
	}
	for _, p := range s.Ranges {
		if p.Addr().Is6() && !both {
			continue
		}
		whole := &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
		r := &netlink.Route{LinkIndex: lo.Attrs().Index, Dst: whole, Type: unix.RTN_LOCAL,
			Table: unix.RT_TABLE_LOCAL, Scope: netlink.SCOPE_HOST}
		if err := netlink.RouteReplace(r); err != nil {
			return fmt.Errorf("range %s: %w", p, err)
		}
	}
	return nil
}
