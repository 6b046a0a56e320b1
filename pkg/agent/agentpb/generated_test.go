package agentpb

import (
	"testing"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
)

// Whoever changes agent.proto runs make generate.
func TestTheGeneratedCodeIsThatOfTheProtoFile(t *testing.T) {
	c := protocompile.Compiler{Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{})}
	files, err := c.Compile(t.Context(), "agent.proto")
	if err != nil {
		t.Fatal(err)
	}
	want := protodesc.ToFileDescriptorProto(files[0])
	got := protodesc.ToFileDescriptorProto(File_csimpath_agent_v1_agent_proto)
	want.Name, got.Name = nil, nil
	if !proto.Equal(got, want) {
		t.Fatal("agent.pb.go is not what agent.proto says: run make generate")
	}
	if n := len(Agent_ServiceDesc.Methods) + len(Agent_ServiceDesc.Streams); n != methods(want) {
		t.Fatalf("agent_grpc.pb.go has %d methods, agent.proto %d: run make generate", n, methods(want))
	}
}

func methods(f *descriptorpb.FileDescriptorProto) (n int) {
	for _, s := range f.GetService() {
		n += len(s.GetMethod())
	}
	return n
}
