; cool some mug and put it in coffeemachine.
; The mug stands in the coffee machine and on the counter at once, as things in the real data do.
(define (problem mini_cool)
(:domain alfred)
(:objects
    agent1 - agent
    Mug_bar_1 Bowl_bar_1 - object
    CoffeeMachine_bar_1 CounterTop_bar_1 Fridge_bar_1 - receptacle
    loc_bar_0 loc_bar_1 loc_bar_2 - location
    MugType BowlType - otype
    CoffeeMachineType CounterTopType FridgeType - rtype)
(:init
    (atLocation agent1 loc_bar_0)
    (receptacleAtLocation CoffeeMachine_bar_1 loc_bar_1) (receptacleType CoffeeMachine_bar_1 CoffeeMachineType)
    (receptacleAtLocation CounterTop_bar_1 loc_bar_1) (receptacleType CounterTop_bar_1 CounterTopType)
    (receptacleAtLocation Fridge_bar_1 loc_bar_2) (receptacleType Fridge_bar_1 FridgeType) (openable Fridge_bar_1)
    (objectType Mug_bar_1 MugType) (pickupable Mug_bar_1) (coolable Mug_bar_1) (cleanable Mug_bar_1)
    (objectType Bowl_bar_1 BowlType) (pickupable Bowl_bar_1) (coolable Bowl_bar_1) (cleanable Bowl_bar_1)
    (inReceptacle Mug_bar_1 CoffeeMachine_bar_1) (inReceptacle Mug_bar_1 CounterTop_bar_1)
    (objectAtLocation Mug_bar_1 loc_bar_1)
    (inReceptacle Bowl_bar_1 Fridge_bar_1) (objectAtLocation Bowl_bar_1 loc_bar_2) (isCool Bowl_bar_1)
    (canContain CoffeeMachineType MugType) (canContain CounterTopType MugType) (canContain CounterTopType BowlType)
    (canContain FridgeType MugType) (canContain FridgeType BowlType))
(:goal (and (exists (?r - receptacle) (exists (?o - object)
    (and (coolable ?o) (objectType ?o MugType) (receptacleType ?r CoffeeMachineType) (isCool ?o)
         (inReceptacle ?o ?r)))))))
