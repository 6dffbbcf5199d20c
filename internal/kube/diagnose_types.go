package kube

import (
	"context"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// explanation is how a closed gate of one type is explained: the command with
// which a person looks further, and what to look at.
type explanation struct {
	look func(gate.Values) string
	ask  func(*inquiry, context.Context, gate.Values)
}

// explanations has an entry for every type of gate.
func explanations() map[string]explanation {
	always := func(command string) func(gate.Values) string {
		return func(gate.Values) string { return command }
	}
	return map[string]explanation{
		"kubernetes_api": {always(lookAtAPI), (*inquiry).health},
		"nodes":          {always("kubectl describe nodes"), (*inquiry).population},
		"endpoint_slice": {lookAtService, (*inquiry).endpoints},
		"webhook":        {lookAtWebhook, (*inquiry).webhook},
		"workload":       {lookAtWorkload, (*inquiry).rollout},
		"crd":            {always("kubectl get crds"), (*inquiry).wantedDefinitions},
		"condition":      {lookAtObjects, (*inquiry).condition},
		"storage_class":  {always("kubectl get storageclasses,csidrivers,csinodes"), (*inquiry).storage},
		"load_balancer":  {lookAtService, (*inquiry).loadBalancer},
		"flux":           {always(lookAtFlux), (*inquiry).flux},
	}
}

// explained gives every type's gates their Diagnose.
func explained(types []gate.Type) []gate.Type {
	for i, t := range types {
		e, known := explanations()[t.Name]
		if !known {
			continue
		}
		types[i].New = func(name string, target gate.Target, v gate.Values) (gate.Gate, error) {
			g, err := t.New(name, target, v)
			if err != nil {
				return g, err
			}
			g.Diagnose = newCluster(target, v.String("address")).diagnose(e.look(v), func(ctx context.Context, q *inquiry) {
				q.target = target
				e.ask(q, ctx, v)
			})
			return g, nil
		}
	}
	return types
}
