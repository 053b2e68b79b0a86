//! Parameters in a fixed order, as flat vectors.

use crate::net::{Transformer, host};
use burn::{
    module::{Module, ModuleMapper, ModuleVisitor, Param},
    tensor::{Gradients, Tensor},
};

/// Dotted path and shape of one parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ParamInfo {
    /// `layers.0.self_attn.q_proj.weight`.
    pub name: String,
    /// Its dimensions.
    pub shape: Vec<usize>,
}

impl ParamInfo {
    /// Number of its elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }
}

/// All parameters, in the order every other function here uses.
pub(crate) fn describe(net: &Transformer) -> Vec<ParamInfo> {
    #[derive(Default)]
    struct Names {
        path: Vec<String>,
        found: Vec<ParamInfo>,
    }
    impl ModuleVisitor for Names {
        fn enter_module(&mut self, name: &str, _: &str) {
            self.path.push(name.into());
        }
        fn exit_module(&mut self, _: &str, _: &str) {
            self.path.pop();
        }
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.found.push(ParamInfo { name: self.path.join("."), shape: param.val().dims().to_vec() });
        }
    }
    let mut names = Names::default();
    net.visit(&mut names);
    names.found
}

/// Values of all parameters on the host.
pub(crate) fn values(net: &Transformer) -> Vec<Vec<f32>> {
    struct Values(Vec<Vec<f32>>);
    impl ModuleVisitor for Values {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.0.push(host(param.val()));
        }
    }
    let mut values = Values(Vec::new());
    net.visit(&mut values);
    values.0
}

/// All parameters as flat tensors.
pub(crate) fn flat(net: &Transformer) -> Vec<Tensor<1>> {
    struct Flat(Vec<Tensor<1>>);
    impl ModuleVisitor for Flat {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.0.push(param.val().reshape([-1]));
        }
    }
    let mut flat = Flat(Vec::new());
    net.visit(&mut flat);
    flat.0
}

/// Gradients of all parameters; `None` where the loss does not reach one.
pub(crate) fn take_gradients(net: &Transformer, gradients: &mut Gradients) -> Vec<Option<Tensor<1>>> {
    struct Take<'a>(&'a mut Gradients, Vec<Option<Tensor<1>>>);
    impl ModuleVisitor for Take<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let gradient = param.val().grad_remove(self.0);
            self.1.push(gradient.map(|g| g.reshape([-1])));
        }
    }
    let mut take = Take(gradients, Vec::new());
    net.visit(&mut take);
    take.1
}

/// Replaces every parameter by what `change` makes of it.
pub(crate) fn map(net: Transformer, change: impl FnMut(usize, Tensor<1>) -> Tensor<1>) -> Transformer {
    struct Change<F>(usize, F);
    impl<F: FnMut(usize, Tensor<1>) -> Tensor<1>> ModuleMapper for Change<F> {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            let index = self.0;
            self.0 += 1;
            param.map(|value| {
                let shape = value.dims();
                (self.1)(index, value.reshape([-1])).reshape(shape)
            })
        }
    }
    net.map(&mut Change(0, change))
}
