package talos

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	pb "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// events are what a system has reported since its start.
type events struct {
	list    []report
	changed chan struct{} // closed at the next report
}

// report is an event with the line of the log that stands for it, or such a line alone.
type report struct {
	at      time.Time
	event   *pb.Event // nil: none
	service string    // whose log the line is, beside the kernel's
	text    string    // empty: no line
}

// newID is a random UUID, as boots and callers' orders have.
func newID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) //nolint:errcheck // it never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// log adds a line to the logs of a machine's system: to the kernel's, and to that of a service.
func (w *world) log(m *machine, service, text string) {
	m.events.add(report{at: time.Now(), service: service, text: text})
}

func (e *events) add(r report) {
	e.list = append(e.list, r)
	close(e.changed)
	e.changed = make(chan struct{})
}

// publish adds an event of the machine's system. actor is the id of the order that led to it; empty if none.
func (w *world) publish(m *machine, actor string, payload proto.Message) {
	data, err := proto.Marshal(payload)
	if err != nil {
		w.fail(m, err)
		return
	}
	w.published++
	service, text := lineOf(payload)
	m.events.add(report{at: time.Now(), service: service, text: text, event: &pb.Event{
		Id: fmt.Sprintf("%020x", w.published), ActorId: actor, Data: &anypb.Any{Value: data,
			TypeUrl: "talos/runtime/" + string(payload.ProtoReflect().Descriptor().FullName())},
	}})
}

// lineOf is the line by which machined logs an event, and the service that it is about.
func lineOf(payload proto.Message) (service, text string) {
	switch e := payload.(type) {
	case *pb.SequenceEvent:
		switch {
		case e.GetError() != nil:
			text = e.GetSequence() + " sequence: " + e.GetError().GetMessage()
		case e.GetAction() == pb.SequenceEvent_START:
			text = e.GetSequence() + " sequence: begins"
		default:
			text = e.GetSequence() + " sequence: done"
		}
	case *pb.TaskEvent:
		text = "task " + e.GetTask() + ": " + strings.ToLower(e.GetAction().String())
	case *pb.ServiceStateEvent:
		state := e.GetAction().String()
		service = e.GetService()
		text = fmt.Sprintf("service[%s](%s): %s", service, state[:1]+strings.ToLower(state[1:]),
			e.GetMessage())
	case *pb.MachineStatusEvent:
		text = fmt.Sprintf("machine is %s and ready [%t]", strings.ToLower(e.GetStage().String()),
			e.GetStatus().GetReady())
	}
	return service, text
}

func (w *world) sequence(m *machine, actor, name string, action pb.SequenceEvent_Action) {
	w.publish(m, actor, &pb.SequenceEvent{Sequence: name, Action: action})
}

// stopsAll is the task by which talosctl knows that a machine goes down.
func (w *world) stopsAll(m *machine, actor string, action pb.TaskEvent_Action) {
	w.publish(m, actor, &pb.TaskEvent{Task: "stopAllServices", Action: action})
}

// Events sends an empty event at first, to show that it has begun. It ends with the machine's system.
func (s *machineService) Events(req *pb.EventsRequest, out pb.MachineService_EventsServer) error {
	unlock := s.world.lock()
	m := requestOf(out.Context()).target
	from, up := m.events, m.up
	at := first(req, from.list)
	unlock()
	if err := out.Send(&pb.Event{ActorId: req.GetWithActorId(), Data: &anypb.Any{}}); err != nil {
		return err
	}
	return s.world.follow(out.Context(), up, from, at, func(r report) error {
		if r.event == nil || req.GetWithActorId() != "" && req.GetWithActorId() != r.event.GetActorId() {
			return nil
		}
		return out.Send(proto.Clone(r.event).(*pb.Event)) //nolint:errcheck // it is one
	})
}

// first is the index of the first report that a caller wants.
func first(req *pb.EventsRequest, list []report) int {
	oldest := time.Now().Add(-time.Duration(req.GetTailSeconds()) * time.Second)
	at, missing := len(list), req.GetTailEvents()
	for ; at > 0; at-- {
		switch e := list[at-1].event; {
		case e == nil || missing < 0 || req.GetTailSeconds() > 0 && list[at-1].at.After(oldest):
		case req.GetTailId() != "" && e.GetId() > req.GetTailId():
		case missing > 0:
			missing--
		default:
			return at
		}
	}
	return at
}

// follow sends the reports of a system from one on. It goes on until the system ends; without a context of
// that, it sends those that are there.
func (w *world) follow(ctx, up context.Context, from *events, at int, send func(report) error) error {
	for {
		unlock := w.lock()
		due, changed := from.list[at:], from.changed
		unlock()
		at += len(due)
		for _, r := range due {
			if err := send(r); err != nil {
				return err
			}
		}
		switch {
		case up == nil:
			return nil
		case len(due) > 0:
			continue
		}
		select {
		case <-changed:
		case <-up.Done():
			up = nil // what it has reported last is still due
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
