// Package journal has what a system of a machine reports: events, and the lines of its logs.
package journal

import (
	"context"
	"fmt"
	"strings"
	"time"

	pb "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// Journal are what a system has reported since its start.
type Journal struct {
	list    []Report
	changed chan struct{} // closed at the next report
}

// Report is an event with the line of the log that stands for it, or such a line alone.
type Report struct {
	At      time.Time
	Event   *pb.Event // nil: none
	Service string    // whose log the line is, beside the kernel's
	Text    string    // empty: no line
}

// New returns the record of a system that starts.
func New() *Journal { return &Journal{changed: make(chan struct{})} }

// Log adds a line to the kernel's log, and to that of a service.
func (e *Journal) Log(service, text string) {
	e.add(Report{At: time.Now(), Service: service, Text: text})
}

func (e *Journal) add(r Report) {
	e.list = append(e.list, r)
	close(e.changed)
	e.changed = make(chan struct{})
}

// Publish adds an event with a number of its own. actor is the id of the order that led to it; empty if none.
func (e *Journal) Publish(number uint64, actor string, payload proto.Message) error {
	data, err := proto.Marshal(payload)
	if err != nil {
		return err
	}
	service, text := lineOf(payload)
	e.add(Report{At: time.Now(), Service: service, Text: text, Event: &pb.Event{
		Id: fmt.Sprintf("%020x", number), ActorId: actor, Data: &anypb.Any{Value: data,
			TypeUrl: "talos/runtime/" + string(payload.ProtoReflect().Descriptor().FullName())},
	}})
	return nil
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

// First is the index of the first report that a caller wants.
func (e *Journal) First(req *pb.EventsRequest) int {
	list := e.list
	oldest := time.Now().Add(-time.Duration(req.GetTailSeconds()) * time.Second)
	at, missing := len(list), req.GetTailEvents()
	for ; at > 0; at-- {
		switch e := list[at-1].Event; {
		case e == nil || missing < 0 || req.GetTailSeconds() > 0 && list[at-1].At.After(oldest):
		case req.GetTailId() != "" && e.GetId() > req.GetTailId():
		case missing > 0:
			missing--
		default:
			return at
		}
	}
	return at
}

// Len is how many reports there are.
func (e *Journal) Len() int { return len(e.list) }

// Last is the index of the first of the last n reports about something.
func (e *Journal) Last(n int, about func(Report) bool) int {
	at := len(e.list)
	for ; at > 0 && n > 0; at-- {
		if about(e.list[at-1]) {
			n--
		}
	}
	return at
}

// Follow sends the reports of a system from one on, which it reads under the lock. It goes on until the
// system ends; without a context of that, it sends those that are there.
func (e *Journal) Follow(ctx, up context.Context, at int, lock func() (unlock func()),
	send func(Report) error) error {
	for {
		unlock := lock()
		due, changed := e.list[at:], e.changed
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
