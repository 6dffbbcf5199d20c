package talos

import (
	"crypto/rand"
	"fmt"

	pb "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// events are what a system has reported since its start.
type events struct {
	list    []*pb.Event
	changed chan struct{} // closed at the next event
}

// newID is a random UUID, as boots and callers' orders have.
func newID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) //nolint:errcheck // it never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// publish adds an event of the machine's system. actor is the id of the order that led to it; empty if none.
func (w *world) publish(m *machine, actor string, payload proto.Message) {
	data, err := proto.Marshal(payload)
	if err != nil {
		w.fail(m, err)
		return
	}
	w.published++
	m.events.list = append(m.events.list, &pb.Event{
		Id: fmt.Sprintf("%020x", w.published), ActorId: actor, Data: &anypb.Any{Value: data,
			TypeUrl: "talos/runtime/" + string(payload.ProtoReflect().Descriptor().FullName())},
	})
	close(m.events.changed)
	m.events.changed = make(chan struct{})
}

func (w *world) sequence(m *machine, actor, name string, action pb.SequenceEvent_Action) {
	w.publish(m, actor, &pb.SequenceEvent{Sequence: name, Action: action})
}

// Events sends an empty event at first, to show that it has begun. It ends with the machine's system.
func (s *machineService) Events(req *pb.EventsRequest, out pb.MachineService_EventsServer) error {
	unlock := s.world.lock()
	m := requestOf(out.Context()).target
	from, up := m.events, m.up
	at := len(from.list)
	switch tail := int(req.GetTailEvents()); {
	case tail < 0:
		at = 0
	case tail > 0:
		at = max(0, at-tail)
	}
	unlock()
	err := out.Send(&pb.Event{ActorId: req.GetWithActorId(), Data: &anypb.Any{}})
	for err == nil {
		unlock := s.world.lock()
		due, changed := from.list[at:], from.changed
		unlock()
		at += len(due)
		for _, e := range due {
			if err == nil && (req.GetWithActorId() == "" || req.GetWithActorId() == e.GetActorId()) {
				err = out.Send(proto.Clone(e).(*pb.Event)) //nolint:errcheck // it is one
			}
		}
		if len(due) > 0 {
			continue
		}
		select {
		case <-changed:
		case <-up.Done():
			return nil
		case <-out.Context().Done():
			return out.Context().Err()
		}
	}
	return err
}
