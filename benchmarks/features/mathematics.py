"""``torch.distributions``, ``torch.linalg``, ``torch.fft`` and ``torch.special``."""
from __future__ import annotations

import torch
import torch.distributions as D
from torch import fft as ft
from torch import linalg as la
from torch import special as sp

from .program import Group, leaf, plain

# ---- torch.distributions ----
distributions = Group("torch.distributions", leaf)


@distributions
def normals(x):
    d = D.Normal(x, torch.ones_like(x))
    return d.sample(), d.rsample((2,)), d.log_prob(x + 1), d.entropy(), d.cdf(x), d.mean, d.variance


@distributions
def categories(x):
    d = D.Categorical(logits=x)
    a = d.sample()
    return a, d.log_prob(a), d.entropy(), d.probs


@distributions
def policies(x):
    d = D.Independent(D.Normal(x, x.exp()), 1)
    action = d.rsample()
    return d.log_prob(action), d.event_shape, d.batch_shape


@distributions
def variational_losses(x):
    q, p = D.Normal(x, torch.ones(4)), D.Normal(0.0, 2.0)
    return D.kl_divergence(q, p).sum(), D.kl_divergence(D.Bernoulli(logits=x), D.Bernoulli(0.3))


@distributions
def counts(x):
    return D.Bernoulli(logits=x).sample(), D.Binomial(5, logits=x).log_prob(torch.ones(4)), D.Poisson(x + 1).sample(), (
        D.Geometric(torch.full((2,), 0.4)).sample(), D.NegativeBinomial(3, logits=x).mean)


@distributions
def positive_numbers(x):
    a = x + 1
    return (
        D.Gamma(a, a).rsample(), D.Beta(a, a).rsample(), D.Exponential(a).rsample(), D.LogNormal(x, a).sample(),
        D.Weibull(a, a).log_prob(a))


@distributions
def vectors(x):
    d = D.MultivariateNormal(x[0], torch.eye(4))
    return d.rsample(), d.log_prob(x), D.Dirichlet(x + 1).rsample(), D.LowRankMultivariateNormal(
        x[0], x[1:2].T, torch.ones(4)).log_prob(x)


@distributions
def transformed(x):
    d = D.TransformedDistribution(D.Normal(0.0, 1.0), [D.AffineTransform(1.0, 2.0), D.SigmoidTransform()])
    return d.rsample((2,)), d.log_prob(torch.full((4,), 0.3)) * x


@distributions
def mixtures(x):
    d = D.MixtureSameFamily(D.Categorical(torch.ones(4)), D.Normal(x[0], torch.ones(4)))
    return d.sample(), d.log_prob(x[:, 0])


@distributions
def relaxed(x):
    return D.RelaxedOneHotCategorical(torch.tensor(0.5), logits=x).rsample(), D.OneHotCategoricalStraightThrough(
        logits=x).rsample(), D.RelaxedBernoulli(torch.tensor(0.5), logits=x).rsample()


@distributions
def constraints(x):
    bounded = D.transform_to(D.constraints.interval(-1.0, 1.0))
    return bounded(x), D.constraints.positive.check(x), D.biject_to(D.constraints.simplex)(x)


@distributions
def expanded_and_validated(x):
    d = D.Laplace(0.0, 1.0, validate_args=True).expand((3, 4))
    try:
        D.Normal(0.0, -1.0)
    except ValueError as e:
        return d.log_prob(x), d, type(e).__name__


# ---- torch.linalg ----
linear = Group("torch.linalg", lambda: (plain()[0] @ plain()[0].T + 2 * torch.eye(3),))


@linear
def norms_of_matrices(x):
    return la.norm(x), la.vector_norm(x, 1, dim=0), la.matrix_norm(x, "fro"), la.matrix_norm(x, 2), la.cond(x)


@linear
def inverses(x):
    return (
        la.inv(x), la.pinv(x), la.solve(x, torch.ones(3)), la.inv_ex(x).inverse, la.lstsq(x, torch.ones(3, 1)).solution)


@linear
def triangles(x):
    c = la.cholesky(x)
    return c, la.solve_triangular(c, torch.ones(3, 1), upper=False), torch.cholesky_inverse(c), la.cholesky_ex(x).info


@linear
def eigenvalues(x):
    values, vectors = la.eigh(x)
    return values, vectors.abs(), la.eigvalsh(x), la.eigvals(x).abs().sort().values


@linear
def singular_values(x):
    u, s, v = la.svd(x, full_matrices=False)
    return s, (u * s) @ v, la.svdvals(x), la.matrix_rank(x)


@linear
def factors(x):
    q, r = la.qr(x)
    p, lower, upper = la.lu(x)
    return q @ r, p @ lower @ upper, la.lu_factor(x)[1], la.ldl_factor(x)[0]


@linear
def determinants(x):
    sign, log = la.slogdet(x)
    return la.det(x), sign * log.exp(), torch.logdet(x), x.trace()


@linear
def powers(x):
    return la.matrix_power(x, 3), la.matrix_exp(x / 10), la.multi_dot([x, x, x]), la.matmul(x, x), la.tensorinv(
        torch.eye(4).reshape(2, 2, 4), 2)


@linear
def products(x):
    return la.cross(x[0], x[1]), la.vecdot(x, x), la.vander(x[0]), la.diagonal(x), la.householder_product(x, x[0])


@linear
def errors_caught(x):
    try:
        return la.inv(torch.zeros(3, 3))
    except la.LinAlgError as e:
        return x * 2, "singular" in str(e)


# ---- torch.fft ----
fourier = Group("torch.fft", leaf)


@fourier
def there_and_back(x):
    return ft.ifft(ft.fft(x)).real, ft.irfft(ft.rfft(x, norm="ortho"), n=4, norm="ortho")


@fourier
def images(x):
    return ft.ifft2(ft.fft2(x)).real, ft.irfft2(ft.rfft2(x), s=(3, 4)), ft.fftn(x).abs(), ft.rfftn(x).imag


@fourier
def filters(x):
    z = ft.rfft(x)
    mask = ft.rfftfreq(4) < 0.3
    return ft.irfft(z * mask, n=4)


@fourier
def frequencies(x):
    return ft.fftfreq(4, d=0.5) * x, ft.fftshift(x), ft.ifftshift(x, dim=1)


@fourier
def hermitian(x):
    return ft.hfft(x.to(torch.cfloat)), ft.ihfft(x), ft.hfft(x.to(torch.cfloat), n=3)


@fourier
def convolution_by_spectra(x):
    n = x.shape[1] * 2 - 1
    return ft.irfft(ft.rfft(x, n) * ft.rfft(x.flip(1), n), n)


@fourier
def spectrograms(x):
    s = torch.stft(x.flatten(), 4, 2, window=torch.hann_window(4), return_complex=True)
    return s.abs() ** 2, torch.istft(s, 4, 2, window=torch.hann_window(4))


@fourier
def layers_of_spectra(x):
    z = torch.view_as_real(ft.rfft2(x, norm="ortho"))
    w = torch.ones_like(z)
    return ft.irfft2(torch.view_as_complex((z * w).contiguous()), s=x.shape, norm="ortho")


# ---- torch.special ----
special = Group("torch.special", lambda: (plain()[0].add(0.1).requires_grad_(),))


@special
def gamma_functions(x):
    return sp.gammaln(x), sp.digamma(x), sp.polygamma(1, x), sp.gammainc(x.detach(), x), sp.multigammaln(x + 1, 2)


@special
def error_functions(x):
    return sp.erf(x), sp.erfc(x), sp.erfinv(x / 3), sp.erfcx(x), sp.ndtr(x), sp.ndtri(x / 3), sp.log_ndtr(x)


@special
def bessel_functions(x):
    y = x.detach()
    return sp.i0(x), sp.i0e(x), sp.i1(x), sp.bessel_j0(y), sp.bessel_y1(y), sp.modified_bessel_k0(y)


@special
def logarithms(x):
    return sp.logit(x / 3), sp.expit(x), sp.log1p(x), sp.expm1(x), sp.xlogy(x, x), sp.xlog1py(x, x), sp.entr(x)


@special
def polynomials(x):
    y = x.detach()
    return sp.chebyshev_polynomial_t(y, 3), sp.hermite_polynomial_h(y, 2), sp.legendre_polynomial_p(y, 2), (
        sp.laguerre_polynomial_l(y, torch.tensor([0, 1, 2, 3])))


@special
def sums(x):
    return sp.logsumexp(x, 1), sp.softmax(x, 0), sp.log_softmax(x, 1)


@special
def others(x):
    return sp.sinc(x), sp.zeta(x.detach() + 2, 2.0), sp.exp2(x), sp.round(x, decimals=1), sp.airy_ai(x.detach())


@special
def results_into_tensors(x):
    out = torch.empty(3, 4)
    sp.expit(x.detach(), out=out)
    return out, sp.spherical_bessel_j0(out)
