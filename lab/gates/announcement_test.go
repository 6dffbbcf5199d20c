package gates_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestAnnouncementWantsAHolderForEachServiceOfCilium(t *testing.T) {
	p := control(t)
	ns := p.namespace(t)
	g := p.gate(t, "announcement", args{"namespace": text(ns)})
	open(t, g)
	p.create(t, ns, `{apiVersion: v1, kind: Service, metadata: {name: shop, namespace: NAMESPACE},
		spec: {type: LoadBalancer, ports: [{port: 80}]}}`)
	open(t, g) // it has no address yet
	patch := `{"status":{"loadBalancer":{"ingress":[{"ip":"192.168.1.232"}]},"conditions":[{` +
		`"type":"cilium.io/IPAMRequestSatisfied","status":"True","reason":"satisfied","message":"",` +
		`"lastTransitionTime":"2026-02-01T12:00:00Z"}]}}`
	_, err := p.cluster.Client.CoreV1().Services(ns).Patch(t.Context(), "shop", types.MergePatchType,
		[]byte(patch), metav1.PatchOptions{}, "status")
	check(t, err)
	closed(t, g, "service "+ns+"/shop: no node announces 192.168.1.232")
	p.create(t, ns, `{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {namespace: NAMESPACE,
		name: cilium-l2announce-NAMESPACE-shop}, spec: {holderIdentity: nobody, leaseDurationSeconds: 15}}`)
	closed(t, g, "service "+ns+"/shop: node nobody announces 192.168.1.232, and is no node of the cluster")
}
