package kubernetes_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	client "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ephemeral-castle/castle/lab/internal/kubernetes"
	"github.com/ephemeral-castle/castle/lab/internal/kubernetes/kubernetestest"
)

// A process holds one control plane, so one test starts it and its subtests
// tell one story about it.
func TestControlPlane(t *testing.T) {
	ctx := t.Context()
	config, err := kubernetestest.Config(t.TempDir())
	check(t, err)
	config.ServiceCIDR, config.PodCIDR = "10.96.0.0/12,fd00:10:96::/112", "10.244.0.0/16,fd00:10:244::/56"
	config.CertSANs, config.Admission = []string{"192.0.2.210"}, []byte(podSecurity)
	config.Logs, config.Flags = t.TempDir(), []string{"feature-gates=HPAScaleToZero=true"}
	requests := &seen{}
	config.Asked = requests.ask
	dir, address := config.Dir, config.Listen
	c, err := kubernetes.Start(ctx, config)
	check(t, err)

	t.Run("answers readyz to the administrator's kubeconfig", func(t *testing.T) {
		answer, err := c.Client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		check(t, err)
		if string(answer) != "ok" {
			t.Errorf("readyz: %s", answer)
		}
	})
	t.Run("serves a certificate for the names that it was given", func(t *testing.T) {
		conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
		check(t, err)
		defer conn.Close()
		if err := conn.ConnectionState().PeerCertificates[0].VerifyHostname("192.0.2.210"); err != nil {
			t.Error(err)
		}
	})
	nodes := kubernetes.Nodes{Client: c.Client}
	t.Run("makes a registered node ready", func(t *testing.T) {
		check(t,
			nodes.Run(ctx, kubernetes.Node{Name: "worker-01",
				Addresses: []string{"192.0.2.214", "fd00:1::214"}, OS: "Talos (v1.13.0)", Kubelet: "v1.36.0",
				CPUs: 4, MemoryBytes: 8 << 30,
				Taints: map[string]string{"example.org/busy": "yes:PreferNoSchedule"}}))
		n := await(t, func() (watch.Interface, error) {
			return c.Client.CoreV1().Nodes().Watch(ctx,
				metav1.ListOptions{FieldSelector: "metadata.name=worker-01"})
		}, func(n *corev1.Node) bool { return nodeReady(n) == corev1.ConditionTrue })
		if n.Status.NodeInfo.OSImage != "Talos (v1.13.0)" || n.Status.NodeInfo.KubeletVersion != "v1.36.0" ||
			n.Status.Addresses[0].Address != "192.0.2.214" || n.Status.Addresses[1].Address != "fd00:1::214" {
			t.Errorf("status: %+v", n.Status)
		}
		// By kube-controller-manager, before it is ready.
		if ranges := n.Spec.PodCIDRs; len(ranges) != 2 || !strings.HasPrefix(ranges[0], "10.244.") ||
			!strings.HasPrefix(ranges[1], "fd00:10:244:") {
			t.Errorf("ranges of Pods: %q", ranges)
		}
	})
	t.Run("has the feature gates of its arguments", func(t *testing.T) {
		metric := autoscalingv2.MetricSpec{Type: autoscalingv2.ExternalMetricSourceType,
			External: &autoscalingv2.ExternalMetricSource{
				Metric: autoscalingv2.MetricIdentifier{Name: "requests"},
				Target: autoscalingv2.MetricTarget{Type: autoscalingv2.ValueMetricType,
					Value: resource.NewQuantity(1, resource.DecimalSI)}}}
		_, err := c.Client.AutoscalingV2().HorizontalPodAutoscalers("default").Create(ctx,
			&autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Name: "web"},
				Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
					MinReplicas: new(int32), MaxReplicas: 1, Metrics: []autoscalingv2.MetricSpec{metric},
					ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{Kind: "Deployment",
						Name: "web", APIVersion: "apps/v1"}}}, metav1.CreateOptions{})
		check(t, err)
	})
	t.Run("lets a worker set what a kubelet may", func(t *testing.T) { describeNodes(t, c, nodes) })
	t.Run("admits Pods as Talos does", func(t *testing.T) {
		await(t, func() (watch.Interface, error) {
			return c.Client.CoreV1().ServiceAccounts("default").Watch(ctx, metav1.ListOptions{})
		},
			func(a *corev1.ServiceAccount) bool { return a.Name == "default" })
		_, err := c.Client.CoreV1().Pods("default").Create(ctx,
			&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "host"},
				Spec: corev1.PodSpec{HostNetwork: true,
					Containers: []corev1.Container{{Name: "c", Image: "example.org/c"}}}},
			metav1.CreateOptions{})
		if err == nil || !strings.Contains(err.Error(), `violates PodSecurity "baseline:latest"`) {
			t.Errorf("error: %v", err)
		}
	})
	t.Run("rolls out a Deployment, its Pods as slow as they say", func(t *testing.T) {
		check(t, deploy(ctx, c, "operator", "1s"))
		d := await(t, func() (watch.Interface, error) {
			return c.Client.AppsV1().Deployments("default").Watch(ctx, metav1.ListOptions{})
		},
			func(d *appsv1.Deployment) bool { return d.Status.ReadyReplicas == 1 })
		if took := time.Since(d.CreationTimestamp.Time); took < time.Second {
			t.Errorf("ready after %s", took)
		}
	})
	t.Run("calls webhooks through Service, EndpointSlice and Pod", func(t *testing.T) {
		ca := newAuthority(t, "webhook")
		makeWebhook(ctx, t, c, ca.Certificate)
		if err := create(ctx, c, "early"); err == nil ||
			!strings.Contains(err.Error(), ":443: connect: connection refused") ||
			!strings.Contains(err.Error(), `failed calling webhook "guard.example.org"`) {
			t.Fatalf("nobody listens: %v", err)
		}
		c.Routes.Register("default/operator:9443", serveWebhook(t, ca))
		check(t, create(ctx, c, "good"))
		if err := create(ctx, c, "bad"); err == nil ||
			!strings.Contains(err.Error(), "denied the request: bad is not a good name") {
			t.Errorf("denied: %v", err)
		}
		c.Routes.Unregister("default/operator:9443")
		check(t, c.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(ctx, "guard",
			metav1.DeleteOptions{}))
	})
	t.Run("serves logs, commands and ports of Pods", func(t *testing.T) { answerPods(t, c, config.Logs) })
	t.Run("binds a claim to the volume that its driver has made", func(t *testing.T) {
		provision(ctx, t, c)
	})
	t.Run("calls a silent node unknown and a woken one ready", func(t *testing.T) {
		check(t, nodes.Stop(ctx, "worker-01"))
		watchNode := func() (watch.Interface, error) {
			return c.Client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{})
		}
		n := await(t, watchNode, func(n *corev1.Node) bool { return nodeReady(n) == corev1.ConditionUnknown })
		if n.Annotations["lab.castle/stopped"] == "" {
			t.Error("nobody could see later that the node has stopped")
		}
		_, err := c.Client.CoreV1().Pods("default").GetLogs(runningPod(t, c).Name,
			&corev1.PodLogOptions{}).Stream(ctx)
		if err == nil || !strings.Contains(err.Error(), "connect: no route to host") {
			t.Errorf("logs of a node that is off: %v", err)
		}
		available := func(want int32) {
			await(t, func() (watch.Interface, error) {
				return c.Client.AppsV1().Deployments("default").Watch(ctx, metav1.ListOptions{})
			}, func(d *appsv1.Deployment) bool { return d.Status.AvailableReplicas == want })
		}
		available(0)
		check(t, nodes.Run(ctx, kubernetes.Node{Name: "worker-01", Addresses: []string{"192.0.2.214"}}))
		await(t, watchNode, func(n *corev1.Node) bool { return nodeReady(n) == corev1.ConditionTrue })
		available(1)
	})
	t.Run("ends the Pods of a node that shuts down, and starts them when it has booted", func(t *testing.T) {
		watchPods := func() (watch.Interface, error) {
			return c.Client.CoreV1().Pods("default").Watch(ctx, metav1.ListOptions{})
		}
		ready := func(want corev1.ConditionStatus) func(*corev1.Pod) bool {
			return func(p *corev1.Pod) bool {
				have := map[corev1.PodConditionType]corev1.ConditionStatus{}
				for _, condition := range p.Status.Conditions {
					have[condition.Type] = condition.Status
				}
				return have[corev1.PodReady] == want && have[corev1.ContainersReady] == want
			}
		}
		check(t, nodes.ShutDown(ctx, "worker-01"))
		n, err := c.Client.CoreV1().Nodes().Get(ctx, "worker-01", metav1.GetOptions{})
		check(t, err)
		if nodeReady(n) != corev1.ConditionFalse {
			t.Errorf("at once: %+v", n.Status.Conditions)
		}
		await(t, watchPods, ready(corev1.ConditionFalse))
		booted := kubernetes.Node{Name: "worker-01", Addresses: []string{"192.0.2.214"}, Kubelet: "v1.36.4",
			CPUs: 8, MemoryBytes: 16 << 30, Booted: true}
		check(t, nodes.Run(ctx, booted))
		n = await(t, func() (watch.Interface, error) {
			return c.Client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{})
		}, func(n *corev1.Node) bool { return nodeReady(n) == corev1.ConditionTrue })
		if n.Status.NodeInfo.KubeletVersion != "v1.36.4" || n.Status.Capacity.Cpu().Value() != 8 ||
			n.Status.Allocatable.Memory().Value() != 16<<30 {
			t.Errorf("status: %+v", n.Status)
		}
		await(t, watchPods, ready(corev1.ConditionTrue))
		list, err := c.Client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
		check(t, err)
		w, err := c.Client.CoreV1().Pods("default").Watch(ctx,
			metav1.ListOptions{ResourceVersion: list.ResourceVersion})
		check(t, err)
		defer w.Stop()
		check(t, nodes.Run(ctx, booted)) // a power cut, too short for anybody to notice
		await(t, func() (watch.Interface, error) { return w, nil }, ready(corev1.ConditionFalse))
		await(t, watchPods, ready(corev1.ConditionTrue))
	})
	t.Run("reads from memory what has not changed, and no longer", func(t *testing.T) {
		readAgain(ctx, t, c, requests)
	})
	t.Run("tells the release of the server that is asked", func(t *testing.T) {
		check(t, kubernetes.ReplaceReleases(dir, map[string]string{"127.9.0.1": "v1.36.3",
			"127.9.0.2": "v1.36.4"}))
		linked, err := c.Client.Discovery().ServerVersion()
		check(t, err)
		for source, want := range map[string]string{"127.9.0.1": "v1.36.3", "127.9.0.2": "v1.36.4",
			"127.9.0.3": linked.GitVersion} {
			config := rest.CopyConfig(c.REST)
			dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}
			config.Dial = dialer.DialContext
			from, err := client.NewForConfig(config)
			check(t, err)
			if have, err := from.Discovery().ServerVersion(); err != nil || have.GitVersion != want {
				t.Errorf("from %s: %v, %v", source, have, err)
			}
		}
	})
}

// provision makes a claim and, as a driver would, the volume that it needs.
func provision(ctx context.Context, t *testing.T, c *kubernetes.Cluster) {
	class, of := "example", "volume.kubernetes.io/storage-provisioner"
	_, err := c.Client.StorageV1().StorageClasses().Create(ctx, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: "driver.example.org"},
		metav1.CreateOptions{})
	check(t, err)
	claims := c.Client.CoreV1().PersistentVolumeClaims("default")
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	_, err = claims.Create(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class, AccessModes: modes,
			Resources: corev1.VolumeResourceRequirements{Requests: size}}}, metav1.CreateOptions{})
	check(t, err)
	watched := func() (watch.Interface, error) { return claims.Watch(ctx, metav1.ListOptions{}) }
	pvc := await(t, watched, func(pvc *corev1.PersistentVolumeClaim) bool {
		return pvc.Annotations[of] == "driver.example.org"
	})
	_, err = c.Client.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-1"},
		Spec: corev1.PersistentVolumeSpec{Capacity: size, AccessModes: modes, StorageClassName: class,
			ClaimRef: &corev1.ObjectReference{Namespace: "default", Name: "data", UID: pvc.UID},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: "driver.example.org", VolumeHandle: "1"}}},
	}, metav1.CreateOptions{})
	check(t, err)
	await(t, watched, func(pvc *corev1.PersistentVolumeClaim) bool {
		return pvc.Status.Phase == corev1.ClaimBound
	})
}

func TestStartRefusesToListenBeyondTheLoopback(t *testing.T) {
	_, err := kubernetes.Start(t.Context(), kubernetes.Config{Dir: t.TempDir(), Listen: "192.0.2.1:6443"})
	if err == nil || !strings.Contains(err.Error(), "listen address 192.0.2.1:6443: not on the loopback") {
		t.Errorf("error: %v", err)
	}
}

const podSecurity = `
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: PodSecurity
  configuration:
    apiVersion: pod-security.admission.config.k8s.io/v1
    kind: PodSecurityConfiguration
    defaults: {enforce: baseline, enforce-version: latest}
`

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func nodeReady(n *corev1.Node) corev1.ConditionStatus {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return ""
}

// await watches until an object meets a condition. A watch without a resource version begins with
// the existing objects.
func await[T any](t *testing.T, open func() (watch.Interface, error), good func(T) bool) T {
	t.Helper()
	w, err := open()
	check(t, err)
	defer w.Stop()
	limit := time.After(time.Minute)
	var last any
	for {
		select {
		case e, more := <-w.ResultChan():
			if !more {
				t.Fatal("the watch ended")
			}
			last = e.Object
			if o, ok := e.Object.(T); ok && good(o) {
				return o
			}
		case <-limit:
			t.Fatalf("still not as it should be: %+v", last)
		}
	}
}

func deploy(ctx context.Context, c *kubernetes.Cluster, name, readyAfter string) error {
	labels, config := map[string]string{"app": name}, corev1.LocalObjectReference{Name: name}
	greeting := &corev1.ConfigMapKeySelector{LocalObjectReference: config, Key: "greeting.conf"}
	_, err := c.Client.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Data:       map[string]string{greeting.Key: "from the ConfigMap"}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = c.Client.AppsV1().Deployments("default").Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels,
					Annotations: map[string]string{kubernetes.ReadyAfter: readyAfter}},
				Spec: corev1.PodSpec{
					Containers: []corev1.Container{{Name: "c", Image: "example.org/c",
						Env: []corev1.EnvVar{{Name: "GREETING", Value: "hello"},
							{Name: "FROM", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: greeting}}},
						VolumeMounts: []corev1.VolumeMount{{Name: "config", MountPath: "/etc/operator"}}}},
					Volumes: []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{
						ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: config}}}},
				},
			},
		},
	}, metav1.CreateOptions{})
	return err
}

func create(ctx context.Context, c *kubernetes.Cluster, name string) error {
	_, err := c.Client.CoreV1().ConfigMaps("default").Create(ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	return err
}

// makeWebhook puts a Service before the operator's Pods, waits for its endpoint and registers a
// webhook for ConfigMaps.
func makeWebhook(ctx context.Context, t *testing.T, c *kubernetes.Cluster, ca []byte) {
	t.Helper()
	_, err := c.Client.CoreV1().Services("default").Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "guard"},
		Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "operator"},
			Ports: []corev1.ServicePort{{Name: "webhook", Port: 443, TargetPort: intstr.FromInt32(9443)}}},
	}, metav1.CreateOptions{})
	check(t, err)
	await(t, func() (watch.Interface, error) {
		return c.Client.DiscoveryV1().EndpointSlices("default").Watch(ctx,
			metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=guard"})
	}, func(s *discoveryv1.EndpointSlice) bool {
		return len(s.Endpoints) == 1 && s.Endpoints[0].Conditions.Ready != nil &&
			*s.Endpoints[0].Conditions.Ready
	})
	fail, none, port := admissionregistrationv1.Fail, admissionregistrationv1.SideEffectClassNone, int32(443)
	_, err = c.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx,
		&admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "guard"},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{
				Name: "guard.example.org", FailurePolicy: &fail, SideEffects: &none,
				AdmissionReviewVersions: []string{"v1"},
				ClientConfig: admissionregistrationv1.WebhookClientConfig{CABundle: ca,
					Service: &admissionregistrationv1.ServiceReference{Namespace: "default", Name: "guard",
						Port: &port}},
				MatchConditions: []admissionregistrationv1.MatchCondition{
					{Name: "ours", Expression: "request.namespace == 'default'"},
				},
				Rules: []admissionregistrationv1.RuleWithOperations{{
					Operations: []admissionregistrationv1.OperationType{"CREATE"},
					Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
						Resources: []string{"configmaps"}}}},
			}},
		}, metav1.CreateOptions{})
	check(t, err)
	// The API server takes up a new configuration in its own time; it is in force once it denies.
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		if _, err := c.Client.CoreV1().ConfigMaps("default").Create(ctx,
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "probe"}},
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
			return
		}
		if i == 500 {
			t.Fatal("the webhook configuration is never used")
		}
		<-tick.C
	}
}

// serveWebhook listens as the operator's process would and dislikes one name.
func serveWebhook(t *testing.T, ca kubernetes.KeyPair) string {
	t.Helper()
	pair, err := tls.X509KeyPair(ca.Certificate, ca.Key)
	check(t, err)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}})
	check(t, err)
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		review := admissionv1.AdmissionReview{}
		if err != nil || json.Unmarshal(body, &review) != nil {
			http.Error(w, "bad review", http.StatusBadRequest)
			return
		}
		bad := review.Request.Name == "bad"
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: !bad}
		if bad {
			review.Response.Result = &metav1.Status{Message: "bad is not a good name"}
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(review); err != nil {
			t.Error(err)
		}
	})}
	go s.Serve(l) //nolint:errcheck // ends with the test
	t.Cleanup(func() { s.Close() })
	return l.Addr().String()
}

func key(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	return k
}

func encode(t *testing.T, k *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.MarshalECPrivateKey(k)
	check(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

// newAuthority is self-signed and good for both signing and, as guard.default.svc, serving.
func newAuthority(t *testing.T, name string) kubernetes.KeyPair {
	t.Helper()
	k := key(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		DNSNames:  []string{"guard.default.svc"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	der, err := x509.CreateCertificate(rand.Reader, template, template, k.Public(), k)
	check(t, err)
	return kubernetes.KeyPair{Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key: encode(t, k)}
}
