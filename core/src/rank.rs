//! By which variables a process of a distributed job knows its rank, how many there are, and which job it is: torchrun's and
//! accelerate's, Open MPI's, PMIx's and PMI's (MPICH, Intel MPI), Slurm's. The library writes them into the history's header, the command
//! reads them there. A history may be of a time at which fewer were written.

/// The variables that a header holds.
pub const VARIABLES: [&str; 19] = [
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "GROUP_RANK",
    "TORCHELASTIC_RUN_ID",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "PMIX_RANK",
    "PMI_RANK",
    "PMI_SIZE",
    "MPI_LOCALRANKID",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_NTASKS",
    "SLURM_NPROCS",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "CUDA_VISIBLE_DEVICES",
];

/// A rank's variable, and those that say how many ranks its launcher started. The innermost launcher comes first: torchrun and
/// mpirun may run in a job of Slurm, which then counts their own processes.
const LAUNCHERS: [(&str, &[&str]); 5] = [
    ("RANK", &["WORLD_SIZE"]),
    ("OMPI_COMM_WORLD_RANK", &["OMPI_COMM_WORLD_SIZE"]),
    ("PMIX_RANK", &["PMI_SIZE", "SLURM_NTASKS", "SLURM_NPROCS"]),
    ("PMI_RANK", &["PMI_SIZE", "SLURM_NTASKS", "SLURM_NPROCS"]),
    ("SLURM_PROCID", &["SLURM_NTASKS", "SLURM_NPROCS"]),
];

fn given<T: AsRef<str>>(value: Option<T>) -> Option<T> {
    value.filter(|v| !v.as_ref().trim().is_empty())
}

/// The rank. `get` knows the variables.
pub fn rank<T: AsRef<str>>(get: impl Fn(&str) -> Option<T>) -> Option<T> {
    LAUNCHERS.iter().find_map(|(rank, _)| given(get(rank)))
}

/// How many ranks there are, and which variable says so: one of the launcher that gave the rank, no other's.
pub fn world<T: AsRef<str>>(get: impl Fn(&str) -> Option<T>) -> Option<(&'static str, T)> {
    let (_, sizes) = LAUNCHERS.iter().find(|(rank, _)| given(get(rank)).is_some())?;
    sizes.iter().find_map(|name| Some((*name, given(get(name))?)))
}

/// The job's id.
pub fn job<T: AsRef<str>>(get: impl Fn(&str) -> Option<T>) -> Option<T> {
    // torchrun's own word for no id.
    let named = |name: &str| given(get(name)).filter(|id| id.as_ref() != "none");
    ["TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"].into_iter().find_map(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rank, size and job of an environment.
    fn of(all: &[(&'static str, &'static str)]) -> (Option<&'static str>, Option<&'static str>, Option<&'static str>) {
        let get = |name: &str| {
            assert!(VARIABLES.contains(&name), "{name} is not in the header");
            all.iter().find(|(n, _)| *n == name).map(|(_, v)| *v)
        };
        (rank(get), world(get).map(|w| w.1), job(get))
    }

    #[test]
    fn each_launcher_is_known() {
        for (all, rank, world) in [
            (&[("RANK", "3"), ("WORLD_SIZE", "8")][..], "3", Some("8")),
            (&[("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "2"), ("PMIX_RANK", "1")], "1", Some("2")),
            (&[("PMIX_RANK", "5"), ("SLURM_PROCID", "5"), ("SLURM_NTASKS", "16")], "5", Some("16")),
            (&[("PMI_RANK", "0"), ("PMI_SIZE", "4")], "0", Some("4")),
            (&[("SLURM_PROCID", "2"), ("SLURM_NPROCS", "3")], "2", Some("3")),
            (&[("RANK", "7")], "7", None),
        ] {
            let (got, size, job) = of(all);
            assert_eq!((got, size, job), (Some(rank), world, None), "{all:?}");
        }
        assert_eq!(of(&[("WORLD_SIZE", "8"), ("SLURM_NTASKS", "8"), ("LOCAL_RANK", "1")]), (None, None, None));
    }

    #[test]
    fn the_innermost_launcher_speaks_and_no_other_counts_for_it() {
        // mpirun in a batch step, torchrun under srun.
        let batch = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8"), ("SLURM_JOB_ID", "77")];
        let mut all = batch.to_vec();
        all.extend([("OMPI_COMM_WORLD_RANK", "5"), ("OMPI_COMM_WORLD_SIZE", "6")]);
        assert_eq!(of(&all), (Some("5"), Some("6"), Some("77")));
        let mut all = batch.to_vec();
        all.extend([("RANK", "9"), ("TORCHELASTIC_RUN_ID", "none")]);
        assert_eq!(of(&all), (Some("9"), None, Some("77")));
        all.extend([("WORLD_SIZE", "16")]);
        assert_eq!(of(&all).1, Some("16"));
        // Set, but empty.
        assert_eq!(of(&[("RANK", ""), ("SLURM_PROCID", "1"), ("SLURM_NTASKS", " ")]), (Some("1"), None, None));
        assert_eq!(of(&[("TORCHELASTIC_RUN_ID", "night-7"), ("SLURM_JOB_ID", "1")]).2, Some("night-7"));
    }
}
