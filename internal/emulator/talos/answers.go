package talos

import (
	"fmt"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// answers collects what the targets of a fan-out said into one response. Every
// unary response of the API is a list "messages" whose elements carry "metadata".
type answers struct {
	response protoreflect.Message
	list     protoreflect.List
}

// newAnswers makes an empty response of the type that the method answers with.
func newAnswers(method string) (*answers, error) {
	name := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(method, "/"), "/", "."))
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	if err != nil {
		return nil, status.Error(codes.Unimplemented, err.Error())
	}
	m, ok := d.(protoreflect.MethodDescriptor)
	if !ok {
		return nil, status.Error(codes.Unimplemented, fmt.Sprintf("%s is no method", name))
	}
	t, err := protoregistry.GlobalTypes.FindMessageByName(m.Output().FullName())
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	response := t.New()
	return &answers{response: response, list: messages(response)}, nil
}

func messages(response protoreflect.Message) protoreflect.List {
	return response.Mutable(response.Descriptor().Fields().ByName("messages")).List()
}

func (a *answers) add(node string, response proto.Message) {
	said := messages(response.ProtoReflect())
	for i := range said.Len() {
		label(said.Get(i).Message(), &common.Metadata{Hostname: node})
		a.list.Append(said.Get(i))
	}
}

func (a *answers) addError(node string, err error) {
	element := a.list.NewElement()
	label(element.Message(), errorMetadata(node, err))
	a.list.Append(element)
}

func label(m protoreflect.Message, metadata *common.Metadata) {
	m.Set(m.Descriptor().Fields().ByName("metadata"), protoreflect.ValueOfMessage(metadata.ProtoReflect()))
}

func errorMetadata(node string, err error) *common.Metadata {
	return &common.Metadata{Hostname: node, Error: err.Error(), Status: status.Convert(err).Proto()}
}
