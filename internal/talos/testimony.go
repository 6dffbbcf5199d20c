package talos

import (
	"bytes"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
)

// recent is how many of a service's events are written down.
const recent = 8

// table writes rows of cells in columns.
func table(rows ...[]string) []byte {
	var text bytes.Buffer
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t")) //nolint:errcheck // a buffer takes everything
	}
	w.Flush() //nolint:errcheck // likewise
	return text.Bytes()
}

func (w witness) silent() []byte { return []byte("no answer: " + w.problem.what + "\n") }

// servicesText is every service's state and health, then the last events of
// those that are not well.
func (w witness) servicesText() []byte {
	if w.problem != nil {
		return w.silent()
	}
	rows := [][]string{{"SERVICE", "STATE", "HEALTH", "LAST EVENT"}}
	var details []byte
	for _, s := range w.services {
		events := s.GetEvents().GetEvents()
		rows = append(rows, []string{s.GetId(), s.GetState(), health(s), lastEvent(s)})
		if health(s) == "OK" {
			continue
		}
		last := [][]string{{"\nEVENTS OF " + s.GetId()}}
		for _, e := range events[max(0, len(events)-recent):] {
			last = append(last, []string{when(e), e.GetState(), e.GetMsg()})
		}
		details = append(details, table(last...)...)
	}
	return append(table(rows...), details...)
}

func when(e *machineapi.ServiceEvent) string {
	if !e.GetTs().IsValid() {
		return "-"
	}
	return e.GetTs().AsTime().UTC().Format(time.RFC3339)
}

// health puts it as talosctl does.
func health(s *machineapi.ServiceInfo) string {
	switch h := s.GetHealth(); {
	case h.GetUnknown():
		return "?"
	case h.GetHealthy():
		return "OK"
	default:
		return "Fail"
	}
}

func lastEvent(s *machineapi.ServiceInfo) string {
	events := s.GetEvents().GetEvents()
	if len(events) == 0 {
		return ""
	}
	return events[len(events)-1].GetMsg()
}

// etcdText is what the machine's own member says.
func (w witness) etcdText() []byte {
	if w.problem != nil {
		return w.silent()
	}
	var rows [][]string
	if w.etcd.problem != nil {
		rows = append(rows, []string{"no answer: " + w.etcd.problem.what})
	}
	if s := w.etcd.status; s != nil {
		rows = append(rows,
			[]string{"member", fmt.Sprintf("%016x", s.GetMemberId())},
			[]string{"leader", fmt.Sprintf("%016x", s.GetLeader())},
			[]string{"learner", fmt.Sprint(s.GetIsLearner())},
			[]string{"raft", fmt.Sprintf("term %d, index %d, applied %d", s.GetRaftTerm(), s.GetRaftIndex(), s.GetRaftAppliedIndex())},
			[]string{"database", fmt.Sprintf("%d bytes, %d in use", s.GetDbSize(), s.GetDbSizeInUse())},
			[]string{"errors", strings.Join(s.GetErrors(), "; ")},
		)
	}
	text := table(rows...)
	if len(w.etcd.members) != 0 {
		rows = [][]string{{"\nMEMBER", "NAME", "LEARNER", "PEERS"}}
		for _, m := range w.etcd.members {
			rows = append(rows, []string{fmt.Sprintf("%016x", m.GetId()), m.GetHostname(), fmt.Sprint(m.GetIsLearner()), strings.Join(m.GetPeerUrls(), ",")})
		}
		text = append(text, table(rows...)...)
	}
	for _, a := range w.etcd.alarms {
		text = fmt.Appendf(text, "\nalarm %s on %016x\n", a.GetAlarm(), a.GetMemberId())
	}
	return text
}

func (w witness) addressesText() []byte {
	if w.problem != nil {
		return w.silent()
	}
	rows := [][]string{{"LINK", "ADDRESS"}}
	for _, a := range w.addresses {
		rows = append(rows, []string{a.LinkName, a.Address.String()})
	}
	return fmt.Appendf(table(rows...), "\nlinks: %s\n", strings.Join(w.links, ", "))
}
