# placeholder until the guard below is written
function(rlk_fast_math_guard_target name)
  add_custom_target(${name})
endfunction()
