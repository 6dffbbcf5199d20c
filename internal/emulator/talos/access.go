package talos

import (
	"context"
	"path"

	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// callerRoles takes the roles from the client certificate's organisations.
// Maintenance mode makes everyone a reader.
func callerRoles(ctx context.Context, maintenance bool) role.Set {
	if maintenance {
		return role.MakeSet(role.Reader)
	}
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(info.State.PeerCertificates) > 0 {
			roles, _ := role.Parse(info.State.PeerCertificates[0].Subject.Organization)
			return roles
		}
	}
	return role.Zero
}

// allowedRoles says who may call a method; an unlisted one is for admins.
// ApplyConfiguration looks again: readers may only in maintenance mode.
func allowedRoles(method string) role.Set {
	switch path.Base(method) {
	case "ApplyConfiguration":
		return role.MakeSet(role.Admin, role.Reader)
	case "Version", "ServiceList", "Disks", "Get", "List", "Watch":
		return role.MakeSet(role.Admin, role.Operator, role.Reader)
	case "EtcdMemberList", "EtcdStatus", "EtcdAlarmList":
		return role.MakeSet(role.Admin, role.Operator, role.Reader, role.EtcdBackup)
	case "Reboot", "Shutdown":
		return role.MakeSet(role.Admin, role.Operator)
	default:
		return role.MakeSet(role.Admin)
	}
}

func notAuthorized() error { return status.Error(codes.PermissionDenied, "not authorized") }

func onlyOnControlPlanes(api string) error {
	return status.Errorf(codes.Unimplemented, "%s is only available on control plane nodes", api)
}

// request is what a handler knows of its caller; it travels in the context.
type request struct {
	target *machine // the machine that answers, which need not be the one connected to
	roles  role.Set
}

type requestKey struct{}

func withRequest(ctx context.Context, r request) context.Context {
	return context.WithValue(ctx, requestKey{}, r)
}

func requestOf(ctx context.Context) request {
	r, _ := ctx.Value(requestKey{}).(request) //nolint:errcheck // every handler runs behind a door, which sets it
	return r
}
